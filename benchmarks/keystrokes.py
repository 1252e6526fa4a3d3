"""Typing sessions replayed through gateway, router and two engines: what a completion between two keystrokes costs.

    python -m benchmarks.keystrokes [--users 2 8 64] [--keys 60] [--files 4] [--without layout] [--sglang VENV SERVE]
        [--arrive-s 2] [--context-tokens 6144] [--kv-mib 256] [--plot FILE.svg] [--check]

Users type real edits of Python files of 4,000 to 8,000 tokens (benchmarks/traces/python_edits.jsonl.xz) with a typist's
pauses, each for `--keys` keys in each of `--files` files. Their editors ask at every pause of 75 ms for 24 tokens of
completion; half of the users' editors close the connection of a request that the next key has overtaken, the others
leave it. Everything is a process of its own: gateway, router, two embedded replicas with the shipped code model, which
is shown --context-tokens, so that longer files need a window. Every user is a tenant. Several numbers of users are as
many replays; levers are switched off with the first. Where there are more users than recorded files, several users type
in copies of one, which share nothing. All begin within --arrive-s: each has a whole file read first, which takes a
processor's core some three seconds, so that 64 who begin together ask for minutes of work at once.

`cold` is the first key in a file, `warm` every further one at the same place, `jump` the first one at another place of
the same file. Prefilled again are the tokens of a prompt that the engine computed, of warm keys, as the ledger has
them; what jumps cost stands beside it. Cancel-to-abort is from the editor's close, or its next request where that has
superseded this one, to the engine's confirmed end, as the ledger has that; beside it stands how long the engines' steps
took in the same replay, at p99.

--without replays once more beside it with one lever off, or several times: layout (prefix, suffix, middle, with the
whole prefix first), grid (the editor sends a window that slides), affinity (round robin), supersession, reuse (of
answers in flight and typed through), speculation (which is by n-grams, as `up` has it). --sglang replays against two
servers of the real SGLang, with its own layout, each asked in turn by the editors (docs/guides/benchmarks.md). --check
ends with an error where a goal is missed. Last line: JSON of the replay with everything on; with others beside it,
theirs stand under `beside`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from benchmarks.bounds import add_check, tell
from benchmarks.keystroke_sessions.editor import Asked, Editor, Endpoint
from benchmarks.keystroke_sessions.edits import load
from benchmarks.keystroke_sessions.figures import EDGES, Figures, figures
from benchmarks.keystroke_sessions.picture import draw
from benchmarks.keystroke_sessions.sites import (
    CONTEXT_TOKENS,
    KV_BYTES,
    LEVERS,
    Row,
    Watch,
    everything_on,
    sglang,
    slipstream,
)

OURS = "slipstream"
MAX_AGAIN_P50, MAX_AGAIN_P99 = 16, 300
MIN_COLD_TO_WARM = 20
MAX_CANCEL_MS = 20.0
"""The limit, unless a step takes longer."""
WITHOUT = "without "


class Site(Protocol):
    """The servers of a replay."""

    def endpoint(self, user: int) -> Endpoint:
        """The endpoint that a user's requests go to."""
        ...

    def watched(self) -> AbstractAsyncContextManager[Watch]:
        """Measure the engines' load during the block; the watch has it afterwards."""
        ...

    async def rows(self, asked: list[Asked]) -> dict[str, Row]:
        """The rows of requests that have ended, by the editors' ids."""
        ...


async def replay(site: Site, users: int, files: int, keys: int, seed: int, arrive_s: float) -> Figures:
    """Replay: every user types in files of their own, starting at a random moment of the first `arrive_s` seconds."""
    edits = load()
    random.Random(seed).shuffle(edits)
    if files > len(edits):
        raise SystemExit(f"--files {files}: there are {len(edits)} recorded edits, each of another file")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        editors = [Editor(f"user-{user}", site.endpoint(user), client, closes=user % 2 == 0) for user in range(users)]

        async def session(user: int) -> None:
            source = random.Random(f"{seed}:{user}")
            await asyncio.sleep(source.uniform(0, arrive_s) if user else 0)
            own = [edits[(user * files + number) % len(edits)] for number in range(files)]
            await editors[user].type(own, source, keys)

        async with site.watched() as watch:
            await asyncio.gather(*(session(user) for user in range(users)))
    asked = [one for editor in editors for one in editor.asked]
    for refusal, count in Counter(one.refusal for one in asked if one.refusal).most_common(3):
        print(f"  {count} refused: {refusal}")
    return figures(asked, await site.rows(asked), watch.load)


@contextlib.asynccontextmanager
async def site_of(name: str, users: int, arguments: argparse.Namespace) -> AsyncIterator[Site]:
    """Run the servers of a replay. name: `without` a lever, `sglang`, or anything else for the whole deployment."""
    if name == "sglang":
        async with sglang(*arguments.sglang) as servers:
            yield servers
    else:
        lever = name.removeprefix(WITHOUT) if name.startswith(WITHOUT) else ""
        setup = everything_on(arguments.context_tokens, arguments.kv_mib << 20)
        async with slipstream(users, setup, lever) as deployment:
            yield deployment


def missed(found: Figures) -> list[str]:
    """The goals that the replay missed."""
    misses = []
    again_p50, again_p99 = found.prefilled_again_p50, found.prefilled_again_p99
    if again_p50 is None or again_p50 > MAX_AGAIN_P50:
        misses.append(f"prefilled again p50 {again_p50} tokens, more than {MAX_AGAIN_P50}")
    if again_p99 is None or again_p99 > MAX_AGAIN_P99:
        misses.append(f"prefilled again p99 {again_p99} tokens, more than {MAX_AGAIN_P99}")
    warm_ms, cold_ms = found.warm_ttft_p50_ms, found.cold_ttft_p50_ms
    if warm_ms is None or cold_ms is None or cold_ms < MIN_COLD_TO_WARM * warm_ms:
        misses.append(f"warm TTFT p50 {warm_ms} ms, not {MIN_COLD_TO_WARM} times under cold, {cold_ms} ms")
    if found.cancel_p99_ms is not None and found.cancel_p99_ms > max(MAX_CANCEL_MS, found.step_p99_ms or 0.0):
        misses.append(
            f"cancel to abort p99 {found.cancel_p99_ms} ms, more than {MAX_CANCEL_MS:.0f} ms and than a step,"
            f" {found.step_p99_ms} ms"
        )
    return misses


def show(name: str, found: Figures) -> None:
    """Print a replay's figures in a few lines."""
    print(
        f"{name}: {found.requests} requests, {found.failed} failed, {found.superseded_share:.0%} superseded, "
        f"{found.reused_share:.0%} answered from another's text\n"
        f"  prefilled again p50 {found.prefilled_again_p50}, p99 {found.prefilled_again_p99} tokens\n"
        f"  TTFT warm p50 {found.warm_ttft_p50_ms}, p99 {found.warm_ttft_p99_ms} ms; cold p50 {found.cold_ttft_p50_ms},"
        f" p99 {found.cold_ttft_p99_ms} ms\n"
        f"  {found.jumps} jumps: prefilled p50 {found.jump_again_p50} tokens, TTFT p50 {found.jump_ttft_p50_ms} ms\n"
        f"  cancel to abort p50 {found.cancel_p50_ms}, p99 {found.cancel_p99_ms} ms of {found.cancels};"
        f" an engine's step p99 {found.step_p99_ms} ms: p99 is {found.cancel_p99_steps} steps\n"
        f"  {found.queued_share:.0%} waited for a place; engines busy {found.engine_busy_share}, hold {found.kv_tokens}"
        f" tokens, evicted {found.evicted_tokens}"
    )
    labels = [*(f"<= {edge}" for edge in EDGES), f"> {EDGES[-1]}"]
    bars = ", ".join(f"{label}: {count}" for label, count in zip(labels, found.histogram, strict=True))
    print(f"  prefilled again, keys by tokens: {bars}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, nargs="+", default=[2], help="of each replay")
    parser.add_argument("--keys", type=int, default=60, help="of a user in a file")
    parser.add_argument("--files", type=int, default=4, help="of a user, one after the other")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arrive-s", type=float, default=2.0, help="over which the users begin")
    parser.add_argument("--context-tokens", type=int, default=CONTEXT_TOKENS, help="that the model is shown")
    parser.add_argument("--kv-mib", type=int, default=KV_BYTES >> 20, help="of each engine, for keys and values")
    parser.add_argument("--without", action="append", default=[], choices=LEVERS)
    parser.add_argument("--sglang", nargs=2, metavar=("VENV", "SERVE"))
    parser.add_argument("--plot", type=Path, help="draw what was prefilled again, as an SVG")
    add_check(parser)
    arguments = parser.parse_args()
    if arguments.sglang and not all(Path(each).exists() for each in arguments.sglang):
        parser.error(f"--sglang: one of {', '.join(arguments.sglang)} is not there")
    asyncio.run(compare(arguments))


async def compare(arguments: argparse.Namespace) -> None:
    """Run one replay after another, each on a deployment of its own."""
    first, *others = arguments.users
    names = [OURS, *(WITHOUT + lever for lever in arguments.without), *(["sglang"] if arguments.sglang else [])]
    replays = dict.fromkeys(names, first) | {f"{users} users": users for users in others}
    results: dict[str, Figures] = {}
    for name, users in replays.items():
        async with site_of(name, users, arguments) as site:
            results[name] = await replay(
                site, users, arguments.files, arguments.keys, arguments.seed, arguments.arrive_s
            )
        show(name, results[name])
    if arguments.plot is not None:
        arguments.plot.write_text(draw(results))
    ours = results.pop(OURS)
    line: dict[str, Any] = dict(ours.last_line)
    if results:
        line["beside"] = {name: found.last_line for name, found in results.items()}
    print(json.dumps(line))
    tell(missed(ours), check=arguments.check)


if __name__ == "__main__":
    main()
