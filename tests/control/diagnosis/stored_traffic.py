"""Rows of made-up traffic, in a real `gateway.request_traces`."""

from __future__ import annotations

from uuid import UUID, uuid5

import asyncpg
import msgspec

from contracts.dated_request_id import mint
from tests.control.diagnosis.findings.plain_evidence import Row
from tests.control.diagnosis.findings.traffic import TENANTS

SPACE = UUID("6f0c2a4e-8f57-4a53-9d3b-5f1f6f0a7c21")
COLUMNS = (
    "tier", "model", "status", "error_code", "phases_ms", "pool", "replica_id", "attempts", "prompt_tokens",
    "cached_tokens", "completion_tokens", "ttft_ms", "tpot_ms", "itl_max_ms", "client_stall_ms", "engine_queue_ms",
    "engine_prefill_ms", "engine_grammar_ms", "retractions", "over_share", "service_class",
)  # fmt: skip
INSERT = f"""
INSERT INTO gateway.request_traces (request_id, organization_id, total_ms, rule, {", ".join(COLUMNS)})
SELECT request_id, organization_id, 1, rule, {", ".join(COLUMNS)}
  FROM json_populate_recordset(NULL::gateway.request_traces, $1::json)
"""
TRACED_AN_HOUR_AGO = """
INSERT INTO gateway.request_traces (request_id, organization_id, tier, status, total_ms, phases_ms, ttft_ms)
SELECT 'req_' || lpad(to_hex((extract(epoch FROM now()) - 3600)::bigint * 1000 + n), 12, '0')
       || left(md5(n::text || random()), 24), gen_random_uuid(), 'chat', 200, 1, '{}', 50
  FROM generate_series(-9000, 9000, 200) AS n
"""
"""Enough on both sides to measure a change of then."""
SAMPLED = (
    "request_id", "organization_id", "project_id", "model", "tier", "endpoint", "template", "session_id", "turn",
    "prompt_tokens", "reusable_tokens", "cause", "blocks",
)  # fmt: skip
SAMPLE = f"""
INSERT INTO gateway.prefix_samples ({", ".join(SAMPLED)})
SELECT {", ".join(SAMPLED)} FROM json_populate_recordset(NULL::gateway.prefix_samples, $1::json)
"""


def organization(name: str) -> UUID:
    return uuid5(SPACE, name)


async def store(database: asyncpg.Connection, kept: list[Row]) -> None:
    """Into the table, with the organizations they name."""
    for name in TENANTS:
        await database.execute(
            "INSERT INTO gateway.organizations (id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            organization(name),
            name,
        )
    records = [
        {
            **{column: getattr(row, column) for column in COLUMNS},
            "request_id": mint(row.at.timestamp() + 1e-4),
            "organization_id": str(organization(row.organization)),
            "rule": None
            if row.rule is None
            else dict(zip(("counter", "level"), row.rule.split(" of the "), strict=True)),
        }
        for row in kept
    ]
    await database.execute(INSERT, msgspec.json.encode(records).decode())
    samples = [
        {
            "request_id": record["request_id"], "organization_id": record["organization_id"],
            "project_id": record["organization_id"], "model": "m", "tier": row.tier, "endpoint": "chat",
            "template": "t", "session_id": record["request_id"], "turn": 1, "prompt_tokens": row.prompt_tokens,
            "reusable_tokens": row.reusable_tokens, "cause": "none", "blocks": [],
        }
        for record, row in zip(records, kept, strict=True)
        if row.reusable_tokens is not None
    ]  # fmt: skip
    await database.execute(SAMPLE, msgspec.json.encode(samples).decode())


async def forget(database: asyncpg.Connection) -> None:
    ids = [organization(name) for name in TENANTS]
    await database.execute("DELETE FROM gateway.prefix_samples WHERE organization_id = ANY($1)", ids)
    await database.execute("DELETE FROM gateway.request_traces WHERE organization_id = ANY($1)", ids)
