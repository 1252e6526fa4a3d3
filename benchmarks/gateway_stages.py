"""Where a gateway's CPU goes: the share of each stage of a request, its Python calls and its I/O.

`python -m benchmarks.gateway_stages [--seconds 4] [--functions 20] [--page]` runs the gateway of `tests/costs` in
memory, so no other process, disk or network is in the figures; Valkey, router, engine and client are left out. CPU is
sampled at up to 1,000 Hz (once per kernel tick) and belongs to the innermost function of ours. Three workloads: a whole
answer of 16 tokens that arrive together, a stream of 64 that arrive together, and a stream of 64 that arrive one by
one. `--page` writes docs/reference/stages.md. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from tests.costs.gateway import CHAT_PATH, MemoryGateway, memory_gateway
from tests.costs.memory_loop import MemoryLoop
from tests.costs.meter import Meter

HERE = f"{Path(__file__).parents[1]}/"
PERIOD_S = 0.001
STAGES = {
    "client's HTTP": ("gateway/http/", "uvicorn/", "gateway/serving/endpoint.py", "gateway/serving/body_room.py"),
    "auth": ("gateway/auth/",),
    "parse and prepare": (
        "gateway/wire/body_shape.py",
        "gateway/wire/chat_prompt.py",
        "gateway/wire/control_tokens.py",
        "gateway/wire/conversation.py",
        "gateway/wire/decode.py",
        "gateway/wire/openai/decode.py",
        "gateway/wire/openai/format.py",
        "gateway/wire/openai/prepare.py",
        "gateway/wire/prepared.py",
        "gateway/serving/model_catalog.py",
        "contracts/prefix.py",
        "engines/tokenizer/",
    ),
    "limit and settle": ("gateway/limits/", "storage/valkey", "gateway/serving/request_limits.py"),
    "journal": ("gateway/metering/",),
    "lease and release": ("router/", "contracts/lease.py"),
    "engine's connection": ("engines/",),
    "relay": ("gateway/wire/", "gateway/serving/stream.py", "gateway/serving/answer_size.py"),
    "pipeline": ("gateway/serving/pipeline.py", "gateway/serving/attempt.py", "gateway/serving/generator.py"),
    "observe": ("gateway/serving/", "gateway/observability/", "gateway/", "storage/", "prometheus_client/"),
    "rest": ("",),
}
"""By stage, beginnings of file paths; the first stage that fits a file counts."""
PEERS = {
    "the client": "client's HTTP",
    "Valkey": "limit and settle",
    "the journal": "journal",
    "the router": "lease and release",
    "the engine": "engine's connection",
    "the loop": "rest",
}
"""By the last words of what `Meter.transferred` counts, its stage."""
STUBS = f"{HERE}tests/costs/peers.py"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "stages.md"
HEAD = """<!-- Written by `python -m benchmarks.gateway_stages --page`; changes made here are lost. -->

# Stages of a request

This page shows how the CPU time of a request's Python code is divided. Like [costs](costs.md), it measures a whole
gateway in one process, with prepared responses in place of Valkey, router, engine and client; its model has no
tokenizer. It excludes the kernel and uvloop, which take
[most of a paced token](../adr/0031-the-hot-path-is-not-compiled.md) in a deployment, and what other threads and later
writes to PostgreSQL cost.

- **CPU**: the share of samples (at most one per kernel tick) in the stage's code, including libraries that it calls. It
  differs by a point or two between runs.
- **calls**: Python functions that were entered. Those of libraries are in `rest`.
- **I/O**: reads, writes and syncs of the stage's connection or file. Those of `rest` are turns of the event loop, at
  least one for each chunk that arrives, because each arrives alone here.
"""
WORKLOADS = {
    "whole": "A whole response: 16 tokens that arrive together",
    "streamed": "A stream of 64 tokens that arrive together",
    "paced": "A stream of 64 tokens that arrive one by one",
}
MESSAGES = [{"role": "user", "content": "Write one line. " * 40}]


class Samples:
    """Counts CPU samples by stage and by function."""

    def __init__(self) -> None:
        self.stages: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self.skipped = 0

    def take(self, _: int, frame: FrameType | None) -> None:
        innermost = ""
        while frame is not None:
            path = frame.f_code.co_filename
            if path == STUBS or (not innermost and "/tests/" in path and path.startswith(HERE)):
                self.skipped += 1
                return
            if not innermost and (name := _named(path)) is not None:
                innermost = f"{name}:{frame.f_code.co_qualname}"
            frame = frame.f_back
        if not innermost:  # the event loop, in whose place a deployment has uvloop
            self.skipped += 1
            return
        self.stages[_stage(innermost)] += 1
        self.functions[innermost] += 1


def _named(path: str) -> str | None:
    """The file's path from the repository, or from the folder of packages for a package of a stage; else None."""
    if path.startswith(HERE) and "/.venv/" not in path and not path.startswith(f"{HERE}benchmarks/"):
        return path.removeprefix(HERE)
    for package in ("uvicorn", "prometheus_client"):
        if (at := path.find(f"/{package}/")) >= 0:
            return path[at + 1 :]
    return None


def _stage(name: str) -> str:
    return next(stage for stage, begins in STAGES.items() if name.startswith(begins))


async def sampled(loop: MemoryLoop, gateway: MemoryGateway, request: bytes, seconds: float) -> tuple[Samples, float]:
    """Send a request repeatedly; returns the samples, and the µs of CPU for each request, peers included."""
    samples = Samples()
    for _ in range(50):
        gateway.client.ask(request)
        await loop.idle()
    signal.signal(signal.SIGPROF, samples.take)
    signal.setitimer(signal.ITIMER_PROF, PERIOD_S, PERIOD_S)
    began_s, done = time.thread_time(), 0
    while time.thread_time() - began_s < seconds:
        gateway.client.ask(request)
        await loop.idle()
        done += 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    return samples, (time.thread_time() - began_s) / done * 1e6


async def calls(
    loop: MemoryLoop, gateway: MemoryGateway, request: bytes, meter: Meter
) -> tuple[Counter[str], Counter[str]]:
    """Count the Python calls and the I/O of one request, by stage."""
    meter.start()
    gateway.client.ask(request)
    await loop.idle()
    count = meter.stop()
    called: Counter[str] = Counter()
    for function, number in count.functions.items():
        called[_stage(function)] += number
    transferred: Counter[str] = Counter()
    for what, number in count.io.items():
        transferred[next(stage for peer, stage in PEERS.items() if what.endswith(peer))] += number
    return called, transferred


def page(figures: dict[str, Any]) -> str:
    """The text of `PAGE`."""
    lines = [HEAD]
    for work, title in WORKLOADS.items():
        found = figures[work]
        lines += [f"## {title}", "", "| stage | CPU | calls | I/O |", "|---|--:|--:|--:|"]
        for stage in STAGES:
            share, called, moved = (found[what][stage] for what in ("share", "calls_of", "io_of"))
            lines.append(f"| {stage} | {100 * share:.0f} % | {called or ''} | {moved or ''} |")
        lines += [f"| **all** | | {found['calls']:,} | {found['io']} |", ""]
    lines += [
        "## The stages' code",
        "",
        "A file belongs to the first stage that fits.",
        "",
        "| stage | files |",
        "|---|---|",
    ]
    for stage, begins in STAGES.items():
        lines.append(f"| {stage} | {', '.join(f'`{each}`' for each in begins if each) or 'all other files'} |")
    return "\n".join(lines) + "\n"


async def measure(loop: MemoryLoop, meter: Meter, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure each workload and print its table; returns the JSON object."""
    figures: dict[str, Any] = {}
    async with memory_gateway(loop) as gateway:
        for work, stream, tokens, together in (
            ("whole", False, 16, True),
            ("streamed", True, 64, True),
            ("paced", True, 64, False),
        ):
            gateway.engine.tokens, gateway.engine.together = tokens, together
            request = gateway.request(CHAT_PATH, model="mock", messages=MESSAGES, stream=stream, max_tokens=tokens)
            samples, cpu_us = await sampled(loop, gateway, request, arguments.seconds)
            called, transferred = await calls(loop, gateway, request, meter)
            total = samples.stages.total()
            ours_us = cpu_us * total / (total + samples.skipped)
            print(
                f"{work}: {ours_us:.0f} us of CPU a request, {called.total()} calls, "
                f"{transferred.total()} reads, writes and turns",
                file=sys.stderr,
            )
            for stage in STAGES:
                share = samples.stages[stage] / total
                print(
                    f"  {stage:<22}{100 * share:5.1f} %{share * ours_us:8.0f} us{called[stage]:6} calls"
                    f"{transferred[stage]:5} I/O",
                    file=sys.stderr,
                )
            for name, count in samples.functions.most_common(arguments.functions):
                print(f"    {100 * count / total:5.1f} %  {name}", file=sys.stderr)
            figures[work] = {
                "cpu_us": round(ours_us),
                "calls": called.total(),
                "io": transferred.total(),
                "share": {stage: round(samples.stages[stage] / total, 3) for stage in STAGES},
                "calls_of": {stage: called[stage] for stage in STAGES},
                "io_of": {stage: transferred[stage] for stage in STAGES},
            }
    return figures


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="CPU seconds of each workload")
    parser.add_argument("--functions", type=int, default=0, help="also the most expensive functions")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    meter = Meter()
    loop = MemoryLoop(meter)
    asyncio.set_event_loop(loop)
    gc.freeze()
    figures = loop.run_until_complete(measure(loop, meter, arguments))
    if arguments.page:
        PAGE.write_text(page(figures))
    print(msgspec.json.encode(figures).decode())


if __name__ == "__main__":
    main()
