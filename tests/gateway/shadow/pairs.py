"""Pairs for tests, stored as a gateway stores them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import mint
from gateway.shadow.answer import Answer
from gateway.shadow.comparison import Comparison, Served, compare
from gateway.shadow.metrics import ShadowMetrics
from gateway.shadow.pair import Outcome, Pair, PairTexts
from gateway.shadow.store import PairStore

PAIR = Pair(
    id="req",
    model="m",
    release="r1",
    baseline_pool="p",
    candidate_pool="c",
    unit=1,
    prompt_tokens=7,
    stage_share=0.0,
    greedy=True,
    outcome=Outcome.COMPARED,
)
SAME = Served(Answer("yes", finish_reason="stop"), 10.0, 50.0, 3, 5)


def pair(baseline: Served = SAME, candidate: Served = SAME, *, json_asked: bool = False, **fields: Any) -> Pair:
    """A pair of another request than any before."""
    comparison: Comparison | None = compare(baseline, candidate, json_asked=json_asked)
    if fields.get("outcome", Outcome.COMPARED) is not Outcome.COMPARED:
        comparison = None
    return msgspec.structs.replace(PAIR, **{"id": mint(), "comparison": comparison, **fields})


def texts(project_id: str, prompt: str = "user: hi", baseline: str = "old", candidate: str = "new") -> PairTexts:
    return PairTexts(project_id, datetime.now(UTC), prompt, baseline, candidate)


def store_on(pool: asyncpg.Pool[Any], registry: CollectorRegistry | None = None) -> PairStore:
    """One that writes when it is told to."""
    return PairStore(pool, ShadowMetrics(registry or CollectorRegistry()), flush_s=600)


async def project(connection: Any, allow_reviews: bool = True) -> str:
    """Its id; of an organization that has no prompts stored."""
    made = await connection.fetchval(
        "WITH owner AS (INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id)"
        " INSERT INTO gateway.projects (organization_id, name, allow_reviews) SELECT id, 'p', $2 FROM owner"
        " RETURNING id",
        f"o-{uuid4()}",
        allow_reviews,
    )
    return str(made)
