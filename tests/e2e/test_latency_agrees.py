"""What the gateway says of a stream's first token, gaps and time per token is what its client's own clock says.

Within 5 ms or 2 %, for every stream. On a busy machine both ends of a stream wait for a processor in between; how long
each of them waited the kernel counts, and so much they may differ by beyond it. A stream in which they waited long is
asked for again, and the try in which they waited least is judged: how busy the machine is decides nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil
import pytest

from tests.deployment import Deployment
from tests.fakes.process import FakeEngineProcess

STREAMS, TOKENS = 45, 6
MAX_MS, MAX_SHARE = 5.0, 0.02
"""A pair agrees within either."""
OFFSET_MS = 1.0
"""A quarter of them are within this."""
TRIES, QUIET_MS = 3, 1.0
"""Of a stream, until both ends together waited less than so long for a processor."""
GAP_MS = 100.0
COLUMNS = "request_id, ttft_ms, tpot_ms, itl_max_ms, gaps_over_100ms, client_stall_ms, completion_tokens"


class Client:
    """One connection, read as bytes come: an SDK's own work would be in every time."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._deployment.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def server_pid(self) -> int:
        """The gateway that has the other end: several listen on one port."""
        mine = self._writer.get_extra_info("sockname")
        for name, process in (await self._deployment.processes()).items():
            if name.startswith("gateway"):
                connections = psutil.Process(process["pid"]).net_connections("tcp")
                if any(each.raddr == mine for each in connections):
                    return int(process["pid"])
        raise AssertionError(f"no gateway has the other end of {mine}")

    async def stream(self, script: dict[str, Any]) -> tuple[str, list[float]]:
        """A stream's id, and the milliseconds from asking to every read that had some text."""
        asked: dict[str, Any] = {"model": "fake", "stream": True, "max_tokens": 100}
        asked["messages"] = [{"role": "user", "content": f"mock:{msgspec.json.encode(script).decode()}"}]
        body, answer, at_ms = msgspec.json.encode(asked), b"", []
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        head += f"authorization: Bearer {self._deployment.key}\r\ncontent-length: {len(body)}\r\n\r\n"
        begun_s = time.perf_counter()
        self._writer.write(head.encode() + body)
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            data = await self._reader.read(65_536)
            now_s = time.perf_counter()
            assert data, answer
            answer += data
            if b'"content":" ' in data:
                at_ms.append((now_s - begun_s) * 1e3)
        return answer.lower().partition(b"x-request-id: ")[2].partition(b"\r\n")[0].decode(), at_ms


class Seen(msgspec.Struct, frozen=True):
    """One stream by its client's clock. waited_ms: for a processor, both ends together."""

    request_id: str
    at_ms: list[float]
    waited_ms: float

    @property
    def gaps_ms(self) -> list[float]:
        return [later - earlier for earlier, later in itertools.pairwise(self.at_ms)]

    def allowed_ms(self, theirs_ms: float) -> float:
        """How far another clock may be from one of these times."""
        return max(MAX_MS, MAX_SHARE * theirs_ms) + self.waited_ms


def waited_ms(*pids: int) -> float:
    """For how long these processes' main threads, ready to run, have had no processor so far."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6 for pid in pids)


async def quietest(client: Client, script: dict[str, Any], *pids: int) -> Seen:
    """Of a few tries, or the first quiet one."""
    tries: list[Seen] = []
    for _ in range(TRIES):
        before_ms = waited_ms(*pids)
        request_id, at_ms = await client.stream(script)
        tries.append(Seen(request_id, at_ms, waited_ms(*pids) - before_ms))
        if tries[-1].waited_ms <= QUIET_MS:
            break
    return min(tries, key=lambda each: each.waited_ms)


@pytest.mark.nightly
async def test_first_token_gaps_and_time_per_token_are_those_of_the_clients_clock(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    """What the gateway says of the first token is never more than the client waited: the rest is the way between."""
    streams: dict[str, Seen] = {}
    async with Client(faked) as client:
        await client.stream({"tokens": 2})
        pids = (os.getpid(), await client.server_pid())
        for number in range(STREAMS):
            script = {
                "tokens": TOKENS,
                "ttft_s": (0.02, 0.1, 0.3)[number % 3],
                "inter_token_s": (0.015, 0.05, 0.13)[number % 3],
            }
            seen = await quietest(client, script, *pids)
            streams[seen.request_id] = seen
    async with faked.database() as database:
        while True:
            rows = await database.fetch(
                f"SELECT {COLUMNS} FROM gateway.request_traces WHERE request_id = ANY($1)",
                list(streams),
            )
            if len(rows) == STREAMS:
                break
            await asyncio.sleep(0.05)
    off_ms: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        seen = streams[row["request_id"]]
        assert (row["client_stall_ms"], row["completion_tokens"]) == (0.0, TOKENS)
        assert len(seen.at_ms) == TOKENS or seen.waited_ms > QUIET_MS, "tokens that came together were not read in time"
        assert row["ttft_ms"] <= seen.at_ms[0]
        for name, ours_ms, theirs_ms in (
            ("first token", row["ttft_ms"], seen.at_ms[0]),
            ("longest gap", row["itl_max_ms"], max(seen.gaps_ms)),
            ("all behind the first token", row["tpot_ms"] * (TOKENS - 1), seen.at_ms[-1] - seen.at_ms[0]),
        ):
            off_ms[name].append(abs(ours_ms - theirs_ms))
            assert off_ms[name][-1] <= seen.allowed_ms(theirs_ms), (name, ours_ms, seen)
        near_ms = seen.allowed_ms(GAP_MS)
        surely, perhaps = (sum(gap_ms > GAP_MS + by_ms for gap_ms in seen.gaps_ms) for by_ms in (near_ms, -near_ms))
        assert surely <= row["gaps_over_100ms"] <= perhaps, (row["gaps_over_100ms"], seen)
    waits = sorted(each.waited_ms for each in streams.values())
    print(f"waited for a processor: half {waits[STREAMS // 2]:.2f} ms at most, at most {waits[-1]:.2f} ms")
    for name, of_ms in off_ms.items():
        of_ms.sort()
        print(f"{name}: half within {of_ms[STREAMS // 2]:.2f} ms, all within {of_ms[-1]:.2f} ms")
        # without any allowance: what one clock counts and the other does not would be in all of them
        assert of_ms[STREAMS // 4] <= OFFSET_MS, of_ms
