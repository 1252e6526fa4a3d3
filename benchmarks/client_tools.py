"""Compares the figures of four load tools, run through the gateway, with the gateway's ledger.

    python -m benchmarks.client_tools [--tool guidellm ...] [--venv FOLDER] [--url URL --key KEY]

guidellm, sglang.bench_serving, `vllm bench serve` and aiperf run with their documented options, one after the other, on
the chat and the completions endpoint of a deployment with the two shipped models. The first run makes a virtual
environment of pinned versions (4 GB; build/client-tools), and later ones use it. --url and --key choose another
deployment, --chat-model and --code-model its models; its ledger is not read. A run is right if no request failed and
the ledger has exactly the tool's tokens, without its warm-up. Prompt tokens are compared if the tool takes them from
the server; sglang.bench_serving counts the ids that it drew before they became text. Times are those of this machine
and of models this small. The last line is JSON. Exit code 1: a run was not right; 2: something is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.client_tool_runs.environment import ROOT, prepare
from benchmarks.client_tool_runs.tool import Endpoint, Figures, Target, Tool
from benchmarks.client_tool_runs.tools import TOOLS
from tests.deployment import Deployment, deployment

VENV = ROOT / "build" / "client-tools"
MODELS = ROOT / "models"
CHAT, CODE = "slipstream-chat", "slipstream-code"
LONGEST_S = 600.0
"""Limit for a tool's run: aiperf takes half a minute to start, several on a busy machine."""
BOOKED_S = 30.0
"""Limit until the ledger has every request; it takes a second or two."""
SHOWN_LINES = 15


class Counted(msgspec.Struct, frozen=True):
    """The ledger's figures for the requests that a tool counts."""

    requests: int
    prompt_tokens: int
    output_tokens: int


class Run(msgspec.Struct, frozen=True):
    """One tool on one endpoint. figures: None if it left none; counted: None if no ledger is read."""

    tool: Tool
    endpoint: Endpoint
    figures: Figures | None
    counted: Counted | None

    @property
    def name(self) -> str:
        """Name in the table."""
        return f"{self.tool.name} {self.endpoint.name.lower()}"

    @property
    def wrong(self) -> str:
        """The fault of the run; empty if it is right."""
        if self.figures is None:
            return "no figures"
        if self.figures.failed or not self.figures.completed:
            return f"{self.figures.failed} requests failed, {self.figures.completed} did not"
        return "" if self.counted is None else differences(self.tool, self.figures, self.counted)


def differences(tool: Tool, figures: Figures, counted: Counted) -> str:
    """Differences between a tool's count and the ledger's; empty if there are none."""
    pairs = {
        "requests": (figures.completed, counted.requests),
        "output": (figures.output_tokens, counted.output_tokens),
    }
    if tool.prompt_from_server:
        pairs["prompt"] = (figures.prompt_tokens, counted.prompt_tokens)
    return "; ".join(
        f"{name}: {theirs} here, {ours} in the ledger" for name, (theirs, ours) in pairs.items() if theirs != ours
    )


async def run(tool: Tool, target: Target, venv: Path) -> Figures | None:
    """Run one tool. Prints its command, and the end of its output if it left no figures."""
    program, *arguments = tool.arguments(target)
    shown = shlex.join((program, *arguments)).replace(target.key, "KEY")
    print(f"\n$ {shown}", flush=True)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPSTREAM_", "PYTHON"))}
    # the tools must not send telemetry, and tokenizers warn of forks
    ours |= {"DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false", "PATH": f"{venv / 'bin'}:{ours.get('PATH', '')}"}
    for name, value in tool.environment(target).items():
        ours.pop(name, None)
        if value is not None:
            ours[name] = value
    with tempfile.TemporaryDirectory(prefix="slip-tool-") as name:
        folder = Path(name)
        log = folder / "output.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                venv / "bin" / program,
                *arguments,
                cwd=folder,
                env=ours,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
            )
        try:
            await asyncio.wait_for(process.wait(), LONGEST_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        try:
            return tool.read(folder)
        except (OSError, StopIteration, LookupError, TypeError, ValueError) as error:
            tail = log.read_text(errors="replace").replace(target.key, "KEY").splitlines()[-SHOWN_LINES:]
            print("\n".join([*tail, f"{tool.name} ended with {process.returncode} and left no figures: {error!r}"]))
            return None


async def counted(platform: Deployment, key_name: str, tool: Tool, figures: Figures) -> Counted:
    """The ledger's figures for a run without its warm-up; waits a limited time for missing requests."""
    wanted = figures.completed + figures.failed + tool.warm_ups
    async with platform.database() as connection, asyncio.timeout(BOOKED_S * 2):
        for _ in range(int(BOOKED_S)):
            rows = await connection.fetch(
                """SELECT prompt_tokens, completion_tokens FROM gateway.usage_events
                   JOIN gateway.api_keys ON api_keys.id = key_id
                   WHERE api_keys.name = $1 AND billed ORDER BY requested_at""",
                key_name,
            )
            if len(rows) >= wanted:
                break
            await asyncio.sleep(1)  # another process' state
    part = rows[tool.warm_ups :]
    return Counted(len(part), sum(row["prompt_tokens"] for row in part), sum(row["completion_tokens"] for row in part))


async def on_shipped_models(tools: Sequence[Tool], venv: Path) -> list[Run]:
    """Make all runs on a deployment with the shipped models, each with a key of its own."""
    runs = []
    environment = {"SLIPSTREAM_LOCAL__CHAT_MODEL": str(MODELS / CHAT)}
    async with deployment(environment=environment, on_disk=True) as platform:
        for tool in tools:
            for endpoint in Endpoint:
                model = CHAT if endpoint is Endpoint.CHAT else CODE
                name = f"{tool.name} {endpoint.name.lower()}"
                key = await platform.make_key("--name", name)
                figures = await run(tool, Target(platform.url, key, endpoint, model, MODELS / model), venv)
                found = None if figures is None else await counted(platform, name, tool, figures)
                runs.append(Run(tool, endpoint, figures, found))
    return runs


async def on_another(tools: Sequence[Tool], venv: Path, arguments: argparse.Namespace) -> list[Run]:
    """Make all runs on a running deployment."""
    models = {
        Endpoint.CHAT: (arguments.chat_model, arguments.chat_tokenizer),
        Endpoint.COMPLETIONS: (arguments.code_model, arguments.code_tokenizer),
    }
    runs = []
    for tool in tools:
        for endpoint, (model, tokenizer) in models.items():
            target = Target(arguments.url.removesuffix("/"), arguments.key, endpoint, model, tokenizer.resolve())
            runs.append(Run(tool, endpoint, await run(tool, target, venv), None))
    return runs


def report(runs: Sequence[Run]) -> bool:
    """Print the table and the last line. Returns whether all runs were right."""
    print(
        f"\n{'tool':<21} {'ok':>4} {'failed':>6} {'TTFT p50':>9} {'ITL p50':>8} {'tokens/s':>8}"
        f" {'prompt':>7} {'ledger':>7} {'output':>7} {'ledger':>7}"
    )
    for each in runs:
        if each.figures is None:
            print(f"{each.name:<21} left no figures")
            continue
        tool, ledger = each.figures, each.counted
        prompt, output = ("-", "-") if ledger is None else (ledger.prompt_tokens, ledger.output_tokens)
        print(
            f"{each.name:<21} {tool.completed:>4} {tool.failed:>6} {tool.ttft_p50_ms:>6.1f} ms"
            f" {tool.itl_p50_ms:>5.1f} ms {tool.output_tokens_per_s:>8.1f} {tool.prompt_tokens:>7} {prompt:>7}"
            f" {tool.output_tokens:>7} {output:>7}"
        )
    wrong = {each.name: each.wrong for each in runs if each.wrong}
    for name, what in wrong.items():
        print(f"WRONG: {name}: {what}")
    line = {
        each.name: None
        if each.figures is None
        else {field: round(value, 1) for field, value in msgspec.structs.asdict(each.figures).items()}
        | ({"ledger": msgspec.structs.asdict(each.counted)} if each.counted is not None else {})
        for each in runs
    }
    print(json.dumps({"runs": line, "right": len(runs) - len(wrong), "wrong": wrong}))
    return not wrong


def main() -> None:
    """Parse, prepare, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=TOOLS, help="repeatable; default: all")
    parser.add_argument("--venv", type=Path, default=VENV, help="folder of the tools' environment")
    parser.add_argument("--url", help="of a running deployment, without /v1")
    parser.add_argument("--key", help="one of its keys")
    parser.add_argument("--chat-model", default=CHAT, help="with --url")
    parser.add_argument("--chat-tokenizer", type=Path, default=MODELS / CHAT, help="a folder with its tokenizer")
    parser.add_argument("--code-model", default=CODE, help="with --url: model for completions")
    parser.add_argument("--code-tokenizer", type=Path, default=MODELS / CODE, help="a folder with its tokenizer")
    arguments = parser.parse_args()
    if (arguments.url is None) != (arguments.key is None):
        parser.error("--url and --key belong together")
    tools = [TOOLS[name] for name in arguments.tool or TOOLS]
    venv = arguments.venv.absolute()
    prepare(venv)
    runs = on_shipped_models(tools, venv) if arguments.url is None else on_another(tools, venv, arguments)
    if not report(asyncio.run(runs)):
        sys.exit(1)


if __name__ == "__main__":
    main()
