"""Where the first tokens of streams that begin together wait, next to smg's.

    python -m benchmarks.first_tokens --smg smg-venv/bin/smg [--rounds 5] [--streams 200]

Waves of streams begin at random moments, the same in each wave, within 0.4 s or 1.6 s, over new or kept connections,
with each side's servers on one core (client and engines on another) or everything on both cores. Each side has an
engine that sends the first token after 20 ms and then one every 25 ms. A stream's time to its first token is divided,
by the moment in its id and the `Server-Timing` of its response, into the time before the gateway accepted it, the
gateway's phases, and the rest: the way of the first token through engine, gateway and client. The kernel's scheduler
says how long each server ran in a wave, and how long its threads could have run but waited for a core. Prints means
over all streams, because means add up, and the median that smg's is compared with. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import statistics
import time
from collections import defaultdict
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from benchmarks.beside_smg import TTFT_S, pinned, smg
from benchmarks.gateway_in_turn import HERE, PROMPT, Side, side
from benchmarks.gateway_overhead import SPACING_S, TOKENS
from benchmarks.needs import two_cores
from benchmarks.processes import pin, scheduled
from contracts.dated_request_id import arrived_at_s

RAMPS_S = (0.4, 1.6)
WAVE_S = 60.0
PHASE = re.compile(r"(\w+);dur=([\d.]+)")
BEFORE, REST = "before", "rest"
FIRST_TEXT = re.compile(rb'"content":"[^"]')
END = b"\r\n0\r\n\r\n"


class Cell(NamedTuple):
    """One way to run a wave."""

    one_core: bool
    ramp_s: float
    kept: bool
    """Whether the connections are those of the wave before."""

    def __str__(self) -> str:
        cores, connections = ("one core" if self.one_core else "two cores"), ("kept" if self.kept else "new")
        return f"{cores}, {connections} connections, within {self.ramp_s:g} s"


class Stream(NamedTuple):
    """One stream's time to its first token, in ms. parts: how it is divided; empty for smg."""

    first_ms: float
    parts: dict[str, float]


class Wave(NamedTuple):
    """Streams in the order in which they began, and the µs that each server ran and waited until the last first
    token."""

    streams: list[Stream]
    ran_us: dict[str, float]
    waited_us: dict[str, float]


class Connection(asyncio.Protocol):
    """A client's connection, for one streamed response at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._first: asyncio.Future[float] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> asyncio.Future[float]:
        """Send a request; the future has the moment of the first generated text."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._received = b""
        self._first, self._ended = loop.create_future(), loop.create_future()
        self._transport.write(request)
        return self._first

    async def ended(self) -> str:
        """The response's head, once all of the response has arrived."""
        assert self._ended is not None
        await self._ended
        return self._received.partition(b"\r\n\r\n")[0].decode()

    def data_received(self, data: bytes) -> None:
        assert self._first is not None
        assert self._ended is not None
        self._received += data
        if not self._first.done() and FIRST_TEXT.search(self._received):
            self._first.set_result(time.perf_counter())
        if self._received.endswith(END) and not self._ended.done():
            self._ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        for waited in (self._first, self._ended):
            if waited is not None and not waited.done():
                waited.set_exception(error or ConnectionResetError(f"closed after {self._received!r}"))

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()


class Load:
    """Sends waves to one side."""

    def __init__(self, to: Side) -> None:
        self.side = to
        body = {
            "model": "fake",
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": TOKENS,
            "stream": True,
        }
        encoded = msgspec.json.encode(body)
        address = urlsplit(to.client.url)
        assert address.hostname is not None
        assert address.port is not None
        self._host, self._port = address.hostname, address.port
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {to.client.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(encoded)}\r\n\r\n"
        )
        self._request = head.encode() + encoded
        self._kept: list[Connection] = []

    async def wave(self, cell: Cell, streams: int) -> Wave:
        """Run one wave. The connections remain for the next one."""
        if not cell.kept:
            self.close()
        kept, self._kept = self._kept, []
        source = random.Random(streams)
        begins_s = sorted(source.uniform(0, cell.ramp_s) for _ in range(streams))
        before = {name: scheduled(pid) for name, pid in self.side.servers.items()}
        running = [asyncio.create_task(self._stream(at_s, kept)) for at_s in begins_s]
        firsts = [await first for first in running]
        after = {name: scheduled(pid) for name, pid in self.side.servers.items()}
        found = [await whole for _, whole in firsts]
        return Wave(
            found,
            {name: after[name].cpu_us - before[name].cpu_us for name in after},
            {name: after[name].waited_us - before[name].waited_us for name in after},
        )

    async def _stream(self, at_s: float, kept: list[Connection]) -> tuple[float, asyncio.Task[Stream]]:
        """Begin a stream after `at_s`. Returns the time to its first token in ms, and its end."""
        await asyncio.sleep(at_s)
        sent_s, sent = time.time(), time.perf_counter()
        if kept:
            connection = kept.pop()
        else:
            _, connection = await asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        first_ms = (await connection.ask(self._request) - sent) * 1e3
        return first_ms, asyncio.create_task(self._ended(connection, sent_s, first_ms))

    async def _ended(self, connection: Connection, sent_s: float, first_ms: float) -> Stream:
        head = await connection.ended()
        self._kept.append(connection)
        status, *lines = head.lower().split("\r\n")
        if " 200 " not in f"{status} ":
            raise RuntimeError(f"{self.side.client.url} answered {head}")
        headers = dict(line.split(": ", 1) for line in lines)
        at_s = arrived_at_s(headers.get("x-request-id", ""))
        if at_s is None:
            return Stream(first_ms, {})
        phases = {name: float(spent_ms) for name, spent_ms in PHASE.findall(headers["server-timing"])}
        parts = {BEFORE: (at_s - sent_s) * 1e3, **phases}
        return Stream(first_ms, {**parts, REST: first_ms - sum(parts.values())})

    def close(self) -> None:
        """Close the kept connections."""
        for each in self._kept:
            each.close()
        self._kept.clear()


class Cost(NamedTuple):
    """What a cell's rounds showed."""

    first_ms: float
    """Median of all streams."""
    early_ms: float
    late_ms: float
    """Medians of the first and the second half of a wave's streams."""
    parts_ms: dict[str, float]
    ran_ms: dict[str, float]
    waited_ms: dict[str, float]
    """For each wave, on average."""


def cost(waves: list[Wave]) -> Cost:
    """Summarize the waves of one side."""
    streams = [each for wave in waves for each in wave.streams]
    halves = [
        [each.first_ms for wave in waves for each in wave.streams[begin : begin + len(wave.streams) // 2]]
        for begin in (0, len(waves[0].streams) // 2)
    ]
    parts: dict[str, float] = defaultdict(float)
    for stream in streams:
        for name, spent_ms in stream.parts.items():
            parts[name] += spent_ms / len(streams)
    return Cost(
        statistics.median(each.first_ms for each in streams),
        statistics.median(halves[0]),
        statistics.median(halves[1]),
        dict(parts),
        {name: statistics.mean(wave.ran_us[name] for wave in waves) / 1e3 for name in waves[0].ran_us},
        {name: statistics.mean(wave.waited_us[name] for wave in waves) / 1e3 for name in waves[0].waited_us},
    )


def shown(title: str, found: Cost) -> str:
    """The lines for one side."""
    halves = f"first half {found.early_ms:.1f}, second {found.late_ms:.1f}"
    lines = [f"  {title:<11} first token p50 {found.first_ms:6.1f} ms ({halves})"]
    if found.parts_ms:
        lines.append("    mean ms: " + ", ".join(f"{name} {spent:.1f}" for name, spent in found.parts_ms.items()))
    busy = [name for name in found.ran_ms if found.ran_ms[name] >= 1]
    lines.append(
        "    ran, waited for a core (ms a wave): "
        + ", ".join(f"{name} {found.ran_ms[name]:.0f}, {found.waited_ms[name]:.0f}" for name in busy)
    )
    return "\n".join(lines)


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smg", default="smg", help="the program, see benchmarks.beside_smg")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=200)
    options = parser.parse_args()
    cores = two_cores()
    cells = [Cell(one, ramp_s, kept) for one in (False, True) for ramp_s in RAMPS_S for kept in (False, True)]
    figures = []
    async with smg(options.smg) as other, side(HERE) as mine:
        sides = {"smg": Load(other), "slipstream": Load(mine)}
        for load in sides.values():
            await load.side.engine.control(ttft_s=TTFT_S, inter_token_s=SPACING_S, tokens=TOKENS)
            await load.wave(Cell(one_core=False, ramp_s=RAMPS_S[-1], kept=False), options.streams)
        for cell in cells:
            if cell.one_core:
                pinned((other, mine), cores)
            else:
                pin(os.getpid(), cores)
            waves: dict[str, list[Wave]] = {name: [] for name in sides}
            for turn in range(options.rounds):
                for name in sides if turn % 2 else reversed(sides):
                    async with asyncio.timeout(WAVE_S):  # a refusal is no stream, so its end is not seen
                        waves[name].append(await sides[name].wave(cell, options.streams))
            found = {name: cost(of) for name, of in waves.items()}
            print(cell, *(shown(name, each) for name, each in found.items()), sep="\n", flush=True)
            figures.append({**cell._asdict(), **{name: each._asdict() for name, each in found.items()}})
        for load in sides.values():
            load.close()
    print(
        msgspec.json.encode({"cells": figures, "rounds": options.rounds, "load": round(os.getloadavg()[0], 1)}).decode()
    )


if __name__ == "__main__":
    uvloop.run(main())
