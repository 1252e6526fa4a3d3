"""Rows of the ledger in bulk, with everything that a price or a total depends on chosen at random."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime

import msgspec

from contracts.dated_request_id import mint
from contracts.generation import Tier
from contracts.usage import Finish, Outcome, Usage
from gateway.metering.journal.records import Closed, Opened

TENANTS = tuple(str(uuid.UUID(int=number)) for number in range(3))
MODELS = ("small", "large", "free")


def moment(text: str) -> float:
    """Epoch seconds of a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def row(choose: random.Random, begin: float, end: float, request_id: str | None = None, attempt: int = 0) -> Closed:
    """An attempt of a request that arrived in between."""
    arrived = choose.uniform(begin, end)
    prompt = choose.randrange(0, 5_000)
    cached = choose.randrange(0, prompt + 1) if choose.random() < 0.5 else 0
    output = choose.randrange(0, 3_000)
    drafted = choose.randrange(0, output + 1) if choose.random() < 0.5 else 0
    tenant = choose.randrange(len(TENANTS))
    billed = choose.random() < 0.8
    return Closed(
        opened=Opened(
            request_id=request_id or mint(arrived),
            attempt=attempt,
            organization_id=TENANTS[0],
            project_id=TENANTS[tenant],
            key_id=TENANTS[tenant],
            model=choose.choice(MODELS),
            tier=choose.choice(list(Tier)),
            endpoint="chat",
            stream=True,
            max_tokens=4_096,
            prompt_tokens_estimate=prompt,
            opened_at=arrived,
        ),
        outcome=Outcome.EXACT,
        finish=Finish.COMPLETE if billed else Finish.ENGINE_ERROR,
        usage=Usage(
            prompt_tokens=prompt,
            completion_tokens=output,
            cached_tokens=cached,
            reasoning_tokens=output // 3,
            cache_write_tokens=choose.randrange(0, prompt - cached + 1) if choose.random() < 0.2 else 0,
            draft_tokens=drafted,
            accepted_draft_tokens=drafted // 2,
        ),
        status=200,
        closed_at=arrived + choose.uniform(0, 30),
        replica_id="chat-0",
        phases_ms={"auth": 0.1},
        billed=billed,
        pool="chat",
        driver="embedded",
    )


def not_billed(closed: Closed) -> Closed:
    """The same, but free."""
    return msgspec.structs.replace(closed, billed=False)
