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


ENTRIES: Mapping[str, Entry] = MappingProxyType({
    "adapters": Entry("adapters", "List, add and remove LoRA adapters, which clients name as MODEL:ADAPTER."),
    "admin-keys": Entry("admin_keys", "Make, list and revoke keys for the admin API."),
    "audit": Entry("audit", "Read and verify the log of administrative changes."),
    "audit-stream": Entry(
        "audit_stream",
        "Measure what lies between this machine and the gateway at URL: name look-up, TLS, reuse of "
        "connections, proxies that buffer, compress or join a stream's events, headers that are lost.",
    ),
    "autocomplete": Entry("autocomplete", "How often completions are taken, and how long they take."),
    "changes": Entry("changes", "Keep what changes were expected to do to latency, beside what they did."),
    "config": Entry("config", "Check or show the settings."),
    "console": Entry("console", "Open the console, and let people into it."),
    "diagnose": Entry(
        "diagnose",
        "Say which phase makes requests slow, by which evidence, what to change, and what would not help.",
    ),
    "down": Entry("running", "Stop what runs on the data folder, letting requests finish."),
    "engine": Entry("processes", "Run one embedded engine."),
    "engines": Entry("engines", "Launch commands for real engines: SGLang, TensorRT-LLM, vLLM, or ours on a GPU."),
    "evals": Entry("evals", "Ask models questions whose answers a program can check."),
    "fleet": Entry(
        "fleet",
        "Show every pool and replica: health, leases, queues, breakers (open: requests are kept from an "
        "engine that failed them; half-open: a few are tried).",
    ),
    "gateway": Entry("processes", "Run one gateway instance."),
    "keys": Entry("keys", "Make, list, rotate and revoke API keys."),
    "limits": Entry("limits", "Limits, class and share of organizations, projects and keys."),
    "logs": Entry("logs", "Print the logs of process NAME, or of all (each line then begins with the name)."),
    "lsp": Entry("lsp", "Complete code in an editor that speaks LSP 3.18, over stdin and stdout."),
    "members": Entry("members", "Add, list and remove members of an organization."),
    "migrate": Entry("migrate", "Bring the database to a revision."),
    "models": Entry("models", "List and change the models that are served, without a restart."),
    "organizations": Entry("organizations", "Make, list, change, disable and enable organizations."),
    "plan": Entry("plan", "Say how many machines a workload needs, which resource runs out first, and what it costs."),
    "pools": Entry("pools", "List and change pools of engines, without a restart."),
    "prefix": Entry(
        "prefix",
        "Say how much of an organization's prompts came before, by template, and why no more of them.",
    ),
    "prices": Entry("prices", "List, set and end prices of models, in units of the currency for a million tokens."),
    "projects": Entry("projects", "Make, list and change projects."),
    "quantization": Entry(
        "quantization",
        "Judge a rounded model, see which parts rounding hurts, calibrate FP8, write FP8 checkpoints.",
    ),
    "releases": Entry("releases", "Release a new version of a model by stages: shadow, 1, 5, 25, 100 %."),
    "replicas": Entry("pools", "Add, weigh, drain and remove single engines of a pool, without a restart."),
    "requests": Entry("requests", "List requests, and look at single ones."),
    "reviews": Entry(
        "reviews",
        "Compare a candidate's answers with those that customers were given, without knowing which is which.",
    ),
    "router": Entry("router", "Run the router, or ask it why."),
    "shadow": Entry(
        "shadow",
        "Compare the answers of candidates with those that customers were given, by release and model.",
    ),
    "simulate": Entry("simulate", "Compare placement policies on modelled engines, minutes of traffic in seconds."),
    "slo": Entry(
        "slo",
        "Show which objectives were kept, how fast their error budgets are used, and what good tokens cost.",
    ),
    "status": Entry(
        "running",
        "Show the processes that `up` keeps running, and every engine as the router sees it, those elsewhere "
        "too.",
    ),
    "top": Entry(
        "top",
        "Show tiers and pools as they are now, until Ctrl-C: goodput, time to first token, time per token, "
        "queues, what was shed, cache hits and cost.",
    ),
    "up": Entry("up", "Start everything on this machine and keep it running until Ctrl-C."),
    "usage": Entry("usage", "Totals, invoices, drafts and checks of the ledger."),
    "webhooks": Entry("webhooks", "List, make, test and remove webhooks; look at deliveries and send one again."),
    "worker": Entry("processes", "Run a background worker with its schedule."),
    "workload": Entry(
        "workload",
        "Lengths, turns, sharing and burstiness of the requests that were, by organization and tier.",
    ),
})  # fmt: skip


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
