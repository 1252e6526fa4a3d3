"""Gateway CPU per response and per token, compared with smg's: whole responses, bursts and paced streams.

    python -m benchmarks.beside_smg --smg smg-venv/bin/smg [--rounds 5] [--requests 2000] [--clients 16]
        [--streams 200] [--one-core]

Both stand in front of a fake engine of their own and take turns. smg 1.13 (from PyPI) checks no keys, has no limits and
keeps no ledger; Slipstream has all of them on, and no tokenizer. CPU is each gateway process' own, from
/proc/PID/task/*/schedstat: smg's includes its routing, ours excludes our router, Valkey and PostgreSQL. A token's cost
includes its share of the request. With `--one-core`, each side's servers share one core, and client and engines have
another. Compare ratios: both sides of a round meet the same machine. Ends with one JSON line: the median and range of
each ratio over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec
import uvloop

from benchmarks.gateway_in_turn import HERE, PROMPT, Side, side
from benchmarks.gateway_overhead import SPACING_S, TOKEN, TOKENS, Client, closed_loop, paced
from benchmarks.needs import missing, two_cores
from benchmarks.processes import pin
from tests.deployment import free_port
from tests.fakes.process import fake_engine
from tests.waiting import START_S

WHOLE_TOKENS = 16
WARM_UP = 400
TTFT_S = 0.02


class Cost(NamedTuple):
    """One side's costs in one round."""

    whole_us: float
    """CPU of a whole response of `WHOLE_TOKENS` tokens."""
    burst_token_us: float
    """CPU of a token of a stream that comes as fast as it can, with its share of the request."""
    paced_token_us: float
    """The same of streams with `SPACING_S` between tokens."""
    first_token_ms: float
    """Median time to the first token of the paced streams."""


async def cost(of: Side, requests: int, clients: int, streams: int) -> Cost:
    """Measure one round. clients: the number of requests at a time, except for paced streams."""
    await of.engine.control(ttft_s=0.0, inter_token_s=0.0, tokens=WHOLE_TOKENS)
    before_us = of.cpu_us()
    await closed_loop(of.client, requests, clients, WHOLE_TOKENS, streamed=False)
    whole_us = (of.cpu_us() - before_us) / requests
    await of.engine.control(ttft_s=0.0, inter_token_s=0.0, tokens=TOKENS)
    before_us = of.cpu_us()
    await closed_loop(of.client, requests, clients, TOKENS)
    burst_token_us = (of.cpu_us() - before_us) / requests / TOKENS
    await of.engine.control(ttft_s=TTFT_S, inter_token_s=SPACING_S, tokens=TOKENS)
    before_us = of.cpu_us()
    firsts_s = await paced(of.client, streams, 2)
    paced_token_us = (of.cpu_us() - before_us) / len(firsts_s) / TOKENS
    return Cost(whole_us, burst_token_us, paced_token_us, statistics.median(firsts_s) * 1e3)


@contextlib.asynccontextmanager
async def smg(program: str) -> AsyncIterator[Side]:
    """Run smg in front of a fake engine."""
    if shutil.which(program) is None:
        missing(f"{program} (pip install smg==1.13.0)")
    async with fake_engine(token=TOKEN) as engine:
        port, metrics_port = free_port(), free_port()
        process = await asyncio.create_subprocess_exec(
            program, "launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", engine.url,
            "--policy", "cache_aware", "--prometheus-port", str(metrics_port), "--log-level", "warn",
            "--max-concurrent-requests", "1024", "--backend", "openai",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        client = Client(f"http://127.0.0.1:{port}", TOKEN, "fake", [PROMPT])
        try:
            try:
                async with asyncio.timeout(START_S):
                    while True:
                        with contextlib.suppress(Exception):  # it is not up yet, or knows no engine yet
                            await client.stream(1)
                            break
                        await asyncio.sleep(0.2)
            except TimeoutError:
                sys.exit(f"{program} streamed no answer of the fake engine within {START_S:g} s; is it smg 1.13?")
            yield Side(engine, process.pid, client, {"smg": process.pid})
        finally:
            await client.close()
            process.terminate()
            await process.wait()


def pinned(sides: Sequence[Side], cores: Sequence[int]) -> None:
    """Run the servers of the sides on the first of these cores, and client and engines on the others."""
    pin(os.getpid(), cores[1:])  # with its children, the servers too
    for each in sides:
        for pid in each.servers.values():
            pin(pid, cores[:1])


def over_rounds(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Median and range of the rounds' ratios."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return {
        "median": round(statistics.median(ratios), 2),
        "least": round(min(ratios), 2),
        "most": round(max(ratios), 2),
    }


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--smg", default="smg", help="the program; `pip install smg==1.13.0` in an environment of its own"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--clients", type=int, default=16, help="requests at a time: more share turns and writes")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--one-core", action="store_true", help="one core for the servers, another for the load")
    options = parser.parse_args()
    cores = two_cores() if options.one_core else []
    print("starting smg and a deployment, and warming both up; about a minute …", file=sys.stderr)
    theirs: list[Cost] = []
    ours: list[Cost] = []
    async with smg(options.smg) as other, side(HERE) as mine:
        if cores:
            pinned((other, mine), cores)
        for each in (other, mine):
            await cost(each, WARM_UP, options.clients, options.streams)
        for turn in range(options.rounds):
            turns = [(other, theirs), (mine, ours)]
            for each, costs in turns if turn % 2 else reversed(turns):
                costs.append(await cost(each, options.requests, options.clients, options.streams))
            print(
                f"round {turn + 1}: whole {ours[-1].whole_us:.0f} us (smg {theirs[-1].whole_us:.0f}), "
                f"burst {ours[-1].burst_token_us:.1f} us a token ({theirs[-1].burst_token_us:.1f}), "
                f"paced {ours[-1].paced_token_us:.1f} ({theirs[-1].paced_token_us:.1f}), "
                f"first token {ours[-1].first_token_ms:.1f} ms ({theirs[-1].first_token_ms:.1f})",
                flush=True,
            )
    figures = {
        f"{name.rpartition('_')[0]}_ratio": over_rounds([each[at] for each in ours], [each[at] for each in theirs])
        for at, name in enumerate(Cost._fields)
    }
    print(
        msgspec.json.encode(
            {
                **figures,
                "rounds": options.rounds,
                "clients": options.clients,
                "one_core": options.one_core,
                "load": round(os.getloadavg()[0], 1),
            }
        ).decode()
    )


if __name__ == "__main__":
    uvloop.run(main())
