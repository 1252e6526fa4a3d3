"""What the gateway says of a stream's first token and longest gap is what its client's own clock says."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, Self

import msgspec
import pytest

from tests.deployment import Deployment
from tests.fakes.process import FakeEngineProcess

STREAMS = 60
MOST_MS, MOST_SHARE = 5.0, 0.02
"""A pair agrees within either."""
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


def agree(ours_ms: float, theirs_ms: float) -> bool:
    return abs(ours_ms - theirs_ms) <= max(MOST_MS, MOST_SHARE * theirs_ms)


@pytest.mark.nightly
async def test_first_token_and_longest_gap_are_those_of_the_clients_clock(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    """Of most streams and of the median one: a busy machine stands still for each of three processes now and then. What
    the gateway says of the first token is never more than the client waited: the rest is the way between them."""
    times: dict[str, list[float]] = {}
    async with Client(faked) as client:
        await client.stream({"tokens": 2})
        for number in range(STREAMS):
            script = {
                "tokens": 6,
                "ttft_s": (0.02, 0.1, 0.3)[number % 3],
                "inter_token_s": (0.015, 0.05, 0.13)[number % 3],
            }
            request_id, at_ms = await client.stream(script)
            times[request_id] = at_ms
    async with faked.database() as database:
        while True:
            rows = await database.fetch(
                f"SELECT {COLUMNS} FROM gateway.request_traces WHERE request_id = ANY($1)",
                list(times),
            )
            if len(rows) == STREAMS:
                break
            await asyncio.sleep(0.05)
    firsts, gaps = [], []
    for row in rows:
        at_ms = times[row["request_id"]]
        longest_ms = max(later - earlier for earlier, later in itertools.pairwise(at_ms))
        firsts.append((row["ttft_ms"], at_ms[0]))
        gaps.append((row["itl_max_ms"], longest_ms))
        assert (row["client_stall_ms"], row["completion_tokens"]) == (0.0, 6)
    assert all(ours_ms <= theirs_ms for ours_ms, theirs_ms in firsts)
    for name, pairs in (("first token", firsts), ("longest gap", gaps)):
        off_ms = sorted(abs(ours_ms - theirs_ms) for ours_ms, theirs_ms in pairs)
        agreeing = sum(agree(*pair) for pair in pairs)
        print(f"{name}: {agreeing} of {STREAMS} agree, half within {off_ms[STREAMS // 2]:.2f} ms")
        assert agreeing >= 0.75 * STREAMS, (name, off_ms)
        assert off_ms[STREAMS // 2] <= MOST_MS
