"""Every command by name: the module that defines it, loaded at its first use, and its line in `slipstream --help`.

The line is the command's own short help. It is repeated here so that `--help` loads no command. A test compares the
two.
"""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import NamedTuple

import click


class Entry(NamedTuple):
    """One command. module: the module of slipstream.commands that defines it, under its name with `_` for `-`, and with
    a final `_` if that is a keyword of Python."""

    module: str
    help: str


GROUPS: Mapping[str, Mapping[str, Entry]] = MappingProxyType({
    "Run a deployment": {
        "up": Entry("up", "Start everything on this machine, until Ctrl-C."),
        "status": Entry("running", "Report overall health, and show processes and engines."),
        "doctor": Entry(
            "doctor",
            "Check the whole deployment: settings, stores, processes, engines, gateway, disk, objectives, diagnosis.",
        ),
        "top": Entry("top", "Watch tiers and pools live, until Ctrl-C."),
        "logs": Entry("logs", "Print the logs of process NAME, or of all processes."),
        "down": Entry("running", "Stop all processes of the data folder, letting requests finish."),
        "config": Entry("config", "Check or show the settings; migrate the database."),
        "console": Entry("console", "Open the console; manage accounts and keys; read the audit log."),
        "import": Entry("imports", "Import models, customers, keys and limits from another gateway."),
    },
    "Customers": {
        "keys": Entry("keys", "Create, list, rotate and revoke API keys."),
        "customers": Entry("customers", "Organizations, projects, members, limits, prices, webhooks."),
        "usage": Entry("usage", "Show totals, invoices, ledger checks, prefixes and completions."),
    },
    "Operate": {
        "fleet": Entry("fleet", "Show every pool and replica; change models, pools and replicas."),
        "requests": Entry("requests", "List requests, or show one."),
        "batches": Entry("batches", "List batches of tenants, or show one."),
        "diagnose": Entry("diagnose", "Find the cause of an alert or of slow requests; show objectives."),
        "releases": Entry("releases", "Release a new version of a model in stages, or review one."),
        "evals": Entry("evals", "Ask models questions whose answers a program can check."),
        "tools": Entry("tools", "Size hardware, launch engines, test load, simulate, audit a network, complete code."),
        "run": Entry(
            "run",
            "Start a coding agent on this deployment: CLIENT with ARGUMENTS, and a key that is revoked when it ends.",
        ),
    },
    "Single processes": {
        "gateway": Entry("processes", "Run one gateway instance."),
        "router": Entry("router", "Run the router, or explain its decisions."),
        "engine": Entry("processes", "Run one embedded engine."),
        "worker": Entry("processes", "Run a background worker with its schedule."),
        "control": Entry("processes", "Serve the admin API and the console at a separate address."),
    },
})  # fmt: skip
"""Groups of commands in the order of `--help`."""
WITHIN: Mapping[str, Mapping[str, Entry]] = MappingProxyType({
    "config": {
        "migrate": Entry("migrate", "Bring the database to a revision."),
    },
    "console": {
        "admin-keys": Entry("admin_keys", "Create, list and revoke keys for the admin API."),
        "audit": Entry("audit", "Read and verify the log of administrative changes."),
    },
    "customers": {
        "organizations": Entry("organizations", "Create, list, change, disable and enable organizations."),
        "members": Entry("members", "Add, list and remove members of an organization."),
        "projects": Entry("projects", "Create, list and change projects."),
        "limits": Entry("limits", "Set and show limits, class and share of organizations, projects and keys."),
        "prices": Entry("prices", "List, set and end prices of models, per million tokens."),
        "adapters": Entry("adapters", "List, add and remove LoRA adapters, which clients name as MODEL:ADAPTER."),
        "webhooks": Entry("webhooks", "List, create, test and remove webhooks; show deliveries and resend one."),
    },
    "usage": {
        "prefix": Entry("prefix", "Show how much of an organization's prompts repeats, and why the rest does not."),
        "autocomplete": Entry("autocomplete", "Show how often completions are accepted; fit prompts to your code."),
        "workload": Entry("workload", "Show lengths, turns, sharing and burstiness of past requests."),
    },
    "fleet": {
        "models": Entry("models", "List and change the models that are served, without a restart."),
        "pools": Entry("pools", "List and change pools of engines, without a restart."),
        "replicas": Entry("pools", "Add, weigh, drain and remove single engines of a pool, without a restart."),
    },
    "diagnose": {
        "slo": Entry("slo", "Show objectives, error budgets, burn rates and the cost of good tokens."),
        "changes": Entry("changes", "Compare the expected and the measured effect of changes on latency."),
    },
    "releases": {
        "shadow": Entry("shadow", "Compare candidates' responses with those that customers got."),
        "reviews": Entry("reviews", "Vote blindly between a candidate's responses and those that customers got."),
    },
    "tools": {
        "plan": Entry("plan", "Size hardware for a workload: machines, the first bottleneck, cost."),
        "engines": Entry("engines", "Write launch commands for SGLang, TensorRT-LLM, vLLM or the embedded engine."),
        "simulate": Entry("simulate", "Compare placement policies on modelled engines."),
        "bench": Entry("bench", "Measure TTFT, TPOT, gaps, goodput and tokens/s under load."),
        "quantization": Entry("quantization", "Judge a rounded model, calibrate FP8 and write FP8 checkpoints."),
        "audit-stream": Entry("audit_stream", "Find proxies that delay or change streams from here to a URL."),
        "lsp": Entry("lsp", "Complete code in an editor that speaks LSP 3.18, over stdin and stdout."),
    },
})  # fmt: skip
"""Commands of other modules inside a group, by the group's name."""
MOVED: Mapping[str, str] = MappingProxyType({
    name: f"{group} {name}" for group, entries in WITHIN.items() for name in entries
})  # fmt: skip
"""Names of 0.1, without a group, and their present names. An old name still works and prints a note."""
ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {name: entry for group in GROUPS.values() for name, entry in group.items()}
)


def loaded(name: str, entry: Entry) -> click.Command:
    """The command of an entry."""
    attribute = name.replace("-", "_")
    module = importlib.import_module(f"slipstream.commands.{entry.module}")
    command: click.Command = getattr(module, f"{attribute}_" if keyword.iskeyword(name) else attribute)
    return command


class LazyCommands(MutableMapping[str, click.Command]):
    """The commands of the table, each loaded at its first use."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = loaded(name, ENTRIES[name])
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


class Group(click.Group):
    """A group that also has the commands that `WITHIN` lists under its name."""

    @property
    def _others(self) -> Mapping[str, Entry]:
        return WITHIN[str(self.name)]

    def list_commands(self, context: click.Context) -> list[str]:
        """Its own commands, then those of other modules."""
        return [*self.commands, *self._others]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command; loads it if another module defines it."""
        if name in self._others:
            return loaded(name, self._others[name])
        return super().get_command(context, name)
