"""Runs each client against a deployment and writes what works: docs/reference/clients.md.

    python -m tests.clients.matrix [--client openai_python ...] [--environments FOLDER] [--page FILE]

A client is a file in `rows/`: its first lines name it and pin its packages, its functions are the features that it
has. The first run installs each client in an environment of its own (build/clients), and the load tools in the one of
`benchmarks.client_tools`, 4 GB; a client that cannot be installed is shown as such. All clients use one deployment,
whose engine follows schemas and calls tools (`engine.py`). A feature works if the client's own check passes and the
gateway has seen and served the request that belongs to it. Results are kept with the environments; the table is of the
last ones of every client, on standard output without --page. Exit code 1: a feature failed that no line beginning with
`known:` in the client's file explains.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.client_tool_runs import environment as load_tools
from benchmarks.client_tools import VENV
from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from contracts.pooling import Task
from tests.clients.engine import CONTEXT_TOKENS, MODEL, VECTORS, ScriptedEngine, scripted_engine
from tests.clients.witness import Exchange, Witness, witness
from tests.deployment import ROOT, Deployment, deployment

HERE = Path(__file__).parent
ROWS = HERE / "rows"
ENVIRONMENTS = ROOT / "build" / "clients"
MARK, RESULT = "installed.json", "result.json"
LIMITED_PER_MINUTE = 10
"""A request every six seconds once they are used up: clients wait that long."""
CLIENT_S = 900.0
LEFT_S = 10.0
"""A client that has left is seen at once; a busy machine is slow."""


class Feature(msgspec.Struct, frozen=True):
    """One column. path: what its served request ends with. statuses: what the client must have been answered, in
    this order among others."""

    name: str
    title: str
    path: str = ""
    statuses: tuple[int, ...] = (200,)


FEATURES = (
    Feature("chat_streamed", "chat, streamed"),
    Feature("chat_whole", "chat, whole"),
    Feature("tools", "tools"),
    Feature("structured_output", "structured output"),
    Feature("reasoning", "reasoning"),
    Feature("usage_in_stream", "usage in a stream"),
    Feature("error_401", "401", statuses=(401,)),
    Feature("error_404", "404", statuses=(404,)),
    Feature("retry_429", "429, retried", statuses=(429, 200)),
    Feature("embeddings", "embeddings", "/embeddings"),
    Feature("responses", "Responses", "/responses"),
    Feature("messages", "Messages", "/messages"),
    Feature("cancel", "cancel"),
)
INFERENCE = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings")


class Client(msgspec.Struct, frozen=True):
    """A row. pip, npm: its pinned packages. is_load_tool: they are in the environment of `benchmarks.client_tools`.
    known: reasons of failures that are the client's own, by feature."""

    file: Path
    title: str
    pip: tuple[str, ...]
    npm: tuple[str, ...]
    known: dict[str, str]
    is_load_tool: bool = False

    @property
    def name(self) -> str:
        """Of its file."""
        return self.file.stem

    @property
    def version(self) -> str:
        """Of its first package."""
        return re.split(r"==|(?<=.)@", [*self.pip, *self.npm][0])[-1]

    def folder(self, environments: Path) -> Path:
        """Its environment."""
        return VENV if self.is_load_tool else environments / self.name

    def is_installed(self, environments: Path) -> bool:
        """Whether a run need not install it; maybe in other versions."""
        if self.is_load_tool:
            return load_tools.is_ready(VENV)
        return (self.folder(environments) / MARK).is_file()


class Row(msgspec.Struct, frozen=True):
    """A client's results: a reason for each feature it has, None where it works. absent: why it could not run. date:
    of the run."""

    client: Client
    results: dict[str, str | None]
    absent: str = ""
    date: datetime.date = datetime.date.min

    @property
    def unexplained(self) -> dict[str, str]:
        """Failures that the client's file does not explain."""
        return {name: why for name, why in self.results.items() if why and name not in self.client.known}


def read_client(file: Path) -> Client:
    """The comments at the top of a row's file: `client:`, `pip:`, `npm:`, `environment:` and `known:` lines."""
    found: dict[str, list[str]] = {"client": [], "pip": [], "npm": [], "environment": [], "known": []}
    for line in file.read_text().splitlines():
        matched = re.match(r"(?:#|//) (client|pip|npm|environment|known): (.+)", line)
        if not matched:
            break
        found[matched[1]].append(matched[2])
    [title] = found["client"]
    known = dict(line.split(" ", 1) for line in found["known"])
    pip, npm = (tuple(" ".join(found[kind]).split()) for kind in ("pip", "npm"))
    return Client(file, title, pip, npm, known, found["environment"] == [VENV.name])


def clients() -> list[Client]:
    """All rows, by name."""
    return [read_client(file) for file in sorted(ROWS.iterdir()) if file.suffix in (".py", ".mjs")]


def prepare(client: Client, folder: Path) -> str:
    """Install it if it is not installed in these versions. Returns the reason if it cannot be."""
    if client.is_load_tool:
        try:
            load_tools.prepare(folder)
        except SystemExit:  # its line is on the standard error
            return "`python -m benchmarks.client_tools` cannot install the load tools"
        return ""
    mark, wanted = folder / MARK, json.dumps([client.pip, client.npm])
    if mark.is_file() and mark.read_text() == wanted:
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    steps: list[tuple[str, ...]] = []
    if client.pip:
        python = str(folder / "bin" / "python")
        steps += [
            (sys.executable, "-m", "venv", str(folder)),
            (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *client.pip),
        ]
    if client.npm:
        steps.append(("npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(folder), *client.npm))
    for step in steps:
        ended = subprocess.run(step, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if ended.returncode:
            lines = (ended.stdout + ended.stderr).strip().splitlines() or ["no output"]
            return next((line for line in reversed(lines) if "ERR" in line), lines[-1])[:200]
    mark.write_text(wanted)
    return ""


async def run(client: Client, environment: dict[str, str], folder: Path, seen: Witness, engine: ScriptedEngine) -> Row:
    """All features of one client."""
    paths = [str(folder / "bin"), str(folder / "node_modules" / ".bin"), os.environ.get("PATH", "")]
    given = {name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR", "HOME")}
    node = client.file.suffix == ".mjs"
    python = folder / "bin" / "python" if client.pip else Path(sys.executable)
    command = ("node", "child.mjs") if node else (str(python), str(HERE / "child.py"))
    file = client.file
    if node:  # Node looks for packages next to the importing file
        for each in (HERE / "child.mjs", client.file):
            shutil.copy(each, folder / each.name)
        file = folder / client.file.name
    with tempfile.TemporaryDirectory(prefix="slip-client-", ignore_cleanup_errors=True) as scratch:
        process = await asyncio.create_subprocess_exec(
            *command,
            str(file),
            cwd=folder,
            env={**given, **environment, "PATH": ":".join(paths), "MATRIX_FOLDER": scratch},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(), CLIENT_S)
        except TimeoutError:
            process.kill()
            output, errors = await process.communicate()
    if process.returncode and not output:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        return Row(client, {}, f"does not start: {''.join(last)[:200]}")
    results: dict[str, str | None] = {}
    # libraries print as well
    lines = [json.loads(line) for line in output.splitlines() if line.startswith(b'{"feature"')]
    said = {line["feature"]: line["reason"] for line in lines}
    for feature in FEATURES:
        if feature.name in said:
            results[feature.name] = said[feature.name] or await missed(client, feature, seen, engine)
    return Row(client, results)


async def missed(client: Client, feature: Feature, seen: Witness, engine: ScriptedEngine) -> str | None:
    """What the gateway has not seen, though the client is content; None: nothing."""
    exchanges = [each for each in seen.seen[client.name, feature.name] if each.path.endswith(INFERENCE)]
    if feature.name == "cancel":
        for _ in range(int(LEFT_S * 10)):
            if client.name in engine.left:
                return None
            await asyncio.sleep(0.1)  # another process' state
        return "the engine went on after the client had left"
    return judged(feature, exchanges)


def judged(feature: Feature, exchanges: Sequence[Exchange]) -> str | None:
    """What these exchanges lack; None: nothing."""
    fitting = [each for each in exchanges if each.path.endswith(feature.path or INFERENCE)]
    statuses = iter(each.status for each in fitting)
    if not all(wanted in statuses for wanted in feature.statuses):
        got = ", ".join(f"{each.path} {each.status}" for each in exchanges) or "no request"
        return f"the gateway saw {got[:200]}"
    refused = [each for each in fitting if each.status >= 400 and each.status not in feature.statuses]
    return f"{refused[0].path} {refused[0].status}: {refused[0].message}" if refused else None


def settings(engine_url: str) -> dict[str, str]:
    """Environment of a deployment with the scripted engine."""
    pool = Pool("scripted", "vllm", (Replica("scripted-1", engine_url),), 1_000)
    models = [
        Model(MODEL, Tier.CHAT, "scripted", CONTEXT_TOKENS),
        Model(VECTORS, Tier.CHAT, "scripted", CONTEXT_TOKENS, task=Task.EMBEDDING),
    ]
    return {
        "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
    }


async def environment_of(platform: Deployment, url: str) -> dict[str, str]:
    """What `child.py` and `child.mjs` read."""
    return {
        "MATRIX_URL": url,
        "MATRIX_KEY": await platform.make_key("--name", "clients"),
        "MATRIX_LIMITED_KEY": await platform.make_key(
            "--name", "limited", "--requests-per-minute", str(LIMITED_PER_MINUTE)
        ),
        "MATRIX_MODEL": MODEL,
        "MATRIX_VECTORS": VECTORS,
        "MATRIX_TOKENIZER": str(ROOT / "models" / "slipstream-chat"),
        "MATRIX_FEATURES": " ".join(feature.name for feature in FEATURES),
    }


async def all_rows(chosen: Sequence[Client], environments: Path) -> list[Row]:
    """Run the clients one after the other, so that no one waits for another's limit."""
    rows = []
    async with (
        scripted_engine() as engine,
        deployment(environment=settings(engine.url)) as platform,
        witness(platform.url) as seen,
    ):
        environment = await environment_of(platform, seen.url)
        for client in chosen:
            folder = client.folder(environments)
            print(f"{client.title} …", file=sys.stderr, flush=True)
            absent = await asyncio.to_thread(prepare, client, folder)
            row = Row(client, {}, absent) if absent else await run(client, environment, folder, seen, engine)
            row = msgspec.structs.replace(row, date=datetime.datetime.now(datetime.UTC).date())
            result = environments / client.name / RESULT
            result.parent.mkdir(parents=True, exist_ok=True)
            result.write_bytes(msgspec.json.encode(row, enc_hook=str))
            rows.append(row)
            failed = row.absent or ", ".join(f"{name}: {why}" for name, why in row.results.items() if why)
            print(f"{client.title}: {failed or 'all work'}", file=sys.stderr, flush=True)
    return rows


def last_rows(environments: Path) -> list[Row]:
    """The last result of each client, with what its file says now; a client that never ran has none."""
    rows = []
    for client in clients():
        file = environments / client.name / RESULT
        row = (
            msgspec.json.decode(file.read_bytes(), type=Row, dec_hook=lambda kind, value: kind(value))
            if file.is_file()
            else Row(client, {}, "it has not been run")
        )
        rows.append(msgspec.structs.replace(row, client=client))
    return rows


def page(rows: Sequence[Row]) -> str:
    """The table, and a reason for each `no`."""
    lines = [
        "# Clients",
        "",
        "`python -m tests.clients.matrix` wrote this page. It runs each client against a deployment whose",
        "engine calls tools, thinks and follows schemas. **yes**: the client's own check passed, and the gateway",
        "served the request. **–**: the client does not have it, or no check of it is written. **no**: the reason is",
        "below the table. `python -m benchmarks.client_tools` compares the load tools' tokens with the ledger's.",
        "",
        "| client | version | run | " + " | ".join(feature.title for feature in FEATURES) + " |",
        "|---" * (len(FEATURES) + 3) + "|",
    ]
    reasons = []
    for row in rows:
        cells = []
        for feature in FEATURES:
            if row.absent:
                cells.append("not installed")
            elif feature.name not in row.results:
                cells.append("–")
            else:
                cells.append("no" if row.results[feature.name] else "yes")
        lines.append(f"| {row.client.title} | {row.client.version} | {row.date} | {' | '.join(cells)} |")
        if row.absent:
            reasons.append(f"- **{row.client.title}**: {plain(row.absent)}")
        for feature in FEATURES:
            if why := row.results.get(feature.name):
                reasons.append(
                    f"- **{row.client.title}, {feature.title}**: {row.client.known.get(feature.name) or plain(why)}"
                )
    if reasons:
        lines += ["", "## Reasons", "", *reasons]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """One line of text that Markdown leaves as it is; no path of this machine."""
    return "`" + re.sub(r"/(?:tmp|home|root|work)/\S+", "…", " ".join(text.split())).replace("`", "'") + "`"


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {client.name: client for client in clients()}
    parser.add_argument("--client", action="append", choices=known, help="repeatable; default: all")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="folder of the installed clients")
    parser.add_argument("--page", type=Path, help="write the page here")
    arguments = parser.parse_args()
    chosen = [known[name] for name in arguments.client or known]
    rows = asyncio.run(all_rows(chosen, arguments.environments.absolute()))
    text = page(last_rows(arguments.environments))
    if arguments.page:
        arguments.page.write_text(text)
    else:
        print(text)
    unexplained = {row.client.name: row.unexplained for row in rows if row.unexplained}
    for name, failures in unexplained.items():
        print(f"WRONG: {name}: {failures}", file=sys.stderr)
    if unexplained:
        sys.exit(1)


if __name__ == "__main__":
    main()
