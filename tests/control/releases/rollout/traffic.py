"""Traces of a model's requests, written as gateways write them: the baseline's, and both arms of a release."""

from __future__ import annotations

import random
from typing import Any

import asyncpg
import msgspec

from contracts.dated_request_id import mint
from contracts.split import Side, side_of, unit_of
from control.releases import store
from control.releases.release import Release

ORGANIZATION = "00000000-0000-0000-0000-000000000001"
INSERT = """
INSERT INTO gateway.request_traces (request_id, organization_id, status, error_code, total_ms, phases_ms, model, tier,
                                    pool, side, release, unit, ttft_ms, itl_max_ms, completion_tokens)
SELECT request_id, organization_id, status, error_code, total_ms, phases_ms, model, tier, pool, side, release, unit,
       ttft_ms, itl_max_ms, completion_tokens FROM json_populate_recordset(NULL::gateway.request_traces, $1::json)
"""


REFUSED = {
    "status": 400, "error_code": "engine_refused", "ttft_ms": None, "itl_max_ms": None, "completion_tokens": None
}  # fmt: skip
TOO_LONG = {**REFUSED, "error_code": "context_length_exceeded"}
REFUSED_LATER = {"error_code": "engine_refused", "completion_tokens": 3}
LIMITED = {**REFUSED, "status": 429, "error_code": "rate_limit_exceeded"}
UNPLACED = {**REFUSED, "error_code": "invalid_request", "pool": None}
EMPTY = {"ttft_ms": None, "itl_max_ms": None, "completion_tokens": 0}
ENDED = {**EMPTY, "completion_tokens": 1}
LEFT = {"status": 499, "error_code": "client_gone", "ttft_ms": None, "itl_max_ms": None, "completion_tokens": 0}
"""What a request comes to."""


def row(choose: random.Random, *, slower: float = 1.0, failing: float = 0.0, **fields: Any) -> dict[str, Any]:
    """One request. slower: factor of its latencies. failing: the part that fails."""
    fails = choose.random() < failing
    ttft_ms = choose.lognormvariate(5, 0.1) * slower
    return {
        "request_id": mint(), "organization_id": ORGANIZATION, "status": 502 if fails else 200,
        "error_code": "engine_failed" if fails else None, "total_ms": ttft_ms * 3, "phases_ms": {}, "model": "m",
        "tier": "chat", "pool": "old", "side": None, "release": None, "unit": None,
        "ttft_ms": None if fails else ttft_ms, "itl_max_ms": None if fails else choose.lognormvariate(3, 0.1) * slower,
        "completion_tokens": 0 if fails else 7, **fields,
    }  # fmt: skip


async def write(connection: asyncpg.Connection, rows: list[dict[str, Any]]) -> None:
    await connection.execute(INSERT, msgspec.json.encode(rows).decode())


async def history(connection: asyncpg.Connection, requests: int = 1_200, seed: int = 0, **fields: Any) -> None:
    """What the baseline served before. fields: as of `row`."""
    choose = random.Random(seed)
    await write(connection, [row(choose, **fields) for _ in range(requests)])


class Load:
    """Sessions of a split model, each on its side. slower, failing: the candidate's. instead, part: what this part of
    the candidate's requests comes to, or of both arms'; typed_on: the code with which who waits for a text longer than
    to the next keystroke ends."""

    def __init__(
        self, seed: int = 1, *, slower: float = 1.0, failing: float = 0.0, instead: dict[str, Any] | None = None,
        part: float = 1.0, both: bool = False, typed_on: str = "", organization: str = ORGANIZATION,
    ) -> None:  # fmt: skip
        self._organization = organization
        self._instead, self._part, self._both, self._typed_on = instead or {}, part, both, typed_on
        self._choose = random.Random(seed)
        self._candidate: dict[str, Any] = {"slower": slower, "failing": failing}
        self._sessions = 0

    async def serve(self, connection: asyncpg.Connection, release: Release, sessions: int) -> int:
        """New sessions in each arm, a request each; returns how many requests were traced."""
        model = (await store.fleet(connection)).model("m")
        assert model is not None
        found: dict[Side, list[dict[str, Any]]] = {Side.CANDIDATE: [], Side.CONTROL: []}
        if model.canary is None or not model.canary.control:
            return 0
        while min(map(len, found.values())) < sessions:
            self._sessions += 1
            unit = unit_of(self._organization, f"session-{self._sessions}")
            side = side_of(model, unit)
            if side in found and len(found[side]) < sessions:
                how: dict[str, Any] = self._candidate if side is Side.CANDIDATE else {}
                of: dict[str, Any] = {"side": side.value, "release": str(release.id), "unit": unit}
                of["organization_id"] = self._organization
                pool = "new" if side is Side.CANDIDATE else "old"
                served = row(self._choose, pool=pool, **of, **how)
                found[side].append(served)
                if self._instead and (self._both or side is Side.CANDIDATE) and self._choose.random() < self._part:
                    served.update(self._instead)
                if self._typed_on and served["ttft_ms"] > (pause_ms := self._choose.lognormvariate(5.0, 0.3)):
                    served.update(LEFT, error_code=self._typed_on, total_ms=pause_ms)
                    served["status"] = 200 if self._typed_on == "superseded" else 499
        rows = [each for pair in zip(*found.values(), strict=True) for each in pair]
        await write(connection, rows)
        return len(rows)
