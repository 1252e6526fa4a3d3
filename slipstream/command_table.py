"""Every command by name: the module it is loaded from when it is used, and the line that `slipstream --help` shows.

A line is the command's own short help, held here so that the list of commands is printed without loading any. A test
compares the two.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import NamedTuple

import click


class Entry(NamedTuple):
    """One command. module: in slipstream.commands, where it has the command's name with `_` for `-`."""

    module: str
    help: str


GROUPS: Mapping[str, Mapping[str, Entry]] = MappingProxyType({
    "Run a deployment": {
        "up": Entry("up", "Start everything on this machine and keep it running until Ctrl-C."),
        "status": Entry("running", "Say whether all is well, and show processes and engines."),
        "top": Entry("top", "Watch tiers and pools live, until Ctrl-C."),
        "logs": Entry("logs", "Print the logs of process NAME, or of all processes."),
        "down": Entry("running", "Stop what runs on the data folder, letting requests finish."),
        "config": Entry("config", "Check or show the settings."),
        "admin-keys": Entry("admin_keys", "Make, list and revoke keys for the admin API."),
        "migrate": Entry("migrate", "Bring the database to a revision."),
    },
    "Customers": {
        "organizations": Entry("organizations", "Make, list, change, disable and enable organizations."),
        "members": Entry("members", "Add, list and remove members of an organization."),
        "projects": Entry("projects", "Make, list and change projects."),
        "keys": Entry("keys", "Make, list, rotate and revoke API keys."),
        "limits": Entry("limits", "Set and show limits, class and share of organizations, projects and keys."),
        "prices": Entry("prices", "List, set and end prices of models, per million tokens."),
        "usage": Entry("usage", "Show totals and invoices, and verify the ledger."),
        "webhooks": Entry("webhooks", "List, make, test and remove webhooks; look at deliveries and send one again."),
    },
    "Fleet": {
        "fleet": Entry("fleet", "Show every pool and replica: health, leases, queues and breakers."),
        "models": Entry("models", "List and change the models that are served, without a restart."),
        "pools": Entry("pools", "List and change pools of engines, without a restart."),
        "replicas": Entry("pools", "Add, weigh, drain and remove single engines of a pool, without a restart."),
        "adapters": Entry("adapters", "List, add and remove LoRA adapters, which clients name as MODEL:ADAPTER."),
        "engines": Entry("engines", "Write launch commands for SGLang, TensorRT-LLM, vLLM, or ours on a GPU."),
        "router": Entry("router", "Run the router, or ask it why."),
    },
    "Observe": {
        "requests": Entry("requests", "List requests, and look at single ones."),
        "batches": Entry("batches", "List batches of tenants, and look at single ones."),
        "slo": Entry("slo", "Show objectives, error budgets, burn rates and the cost of good tokens."),
        "diagnose": Entry("diagnose", "Name what burns an alert or makes requests slow, and what mends it."),
        "workload": Entry("workload", "Show lengths, turns, sharing and burstiness of past requests."),
        "prefix": Entry("prefix", "Show how much of an organization's prompts repeats, and what breaks the rest."),
        "autocomplete": Entry("autocomplete", "Show how often completions are accepted, and their latency."),
        "changes": Entry("changes", "Compare the expected and the measured effect of changes on latency."),
        "audit": Entry("audit", "Read and verify the log of administrative changes."),
        "audit-stream": Entry("audit_stream", "Find proxies that delay or change streams from here to a URL."),
    },
    "Release": {
        "releases": Entry("releases", "Release a new version of a model by stages: shadow, 1, 5, 25, 100 %."),
        "evals": Entry("evals", "Ask models questions whose answers a program can check."),
        "shadow": Entry("shadow", "Compare candidates' answers with those that customers got."),
        "reviews": Entry("reviews", "Vote blindly between a candidate's answers and those that customers got."),
        "quantization": Entry("quantization", "Judge a rounded model, calibrate FP8 and write FP8 checkpoints."),
    },
    "Plan": {
        "plan": Entry("plan", "Size hardware for a workload: machines, the first bottleneck, cost."),
        "simulate": Entry("simulate", "Compare placement policies on modelled engines."),
    },
    "Console and editors": {
        "console": Entry("console", "Open the console, and let people into it."),
        "lsp": Entry("lsp", "Complete code in an editor that speaks LSP 3.18, over stdin and stdout."),
    },
    "Single processes": {
        "gateway": Entry("processes", "Run one gateway instance."),
        "engine": Entry("processes", "Run one embedded engine."),
        "worker": Entry("processes", "Run a background worker with its schedule."),
    },
})  # fmt: skip
"""Groups of commands in the order of `--help`."""
ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {name: entry for group in GROUPS.values() for name, entry in group.items()}
)


class LazyCommands(MutableMapping[str, click.Command]):
    """The commands of the table, each loaded when it is first asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = importlib.import_module(f"slipstream.commands.{ENTRIES[name].module}")
            self._loaded[name] = getattr(module, name.replace("-", "_"))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in ENTRIES

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)

    def __setitem__(self, name: str, command: click.Command) -> None:
        raise TypeError(f"{name}: a command is added to the table")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name}: a command is removed from the table")
