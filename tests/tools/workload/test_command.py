"""`slipstream usage workload` on a real ledger with samples, and its trace in `slipstream tools simulate`."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from contracts.dated_request_id import mint
from contracts.generation import Tier
from contracts.usage import Finish, Purpose, Usage
from gateway.metering.ledger.ledger import Ledger
from gateway.observability.metrics import GatewayMetrics
from gateway.prefixes.config import PrefixesConfig
from gateway.prefixes.observer import PrefixObserver
from gateway.prefixes.store import PrefixSamples
from gateway.prefixes.template import PrefixDigests
from slipstream.commands.workload import workload
from storage.engine import lazy_pool
from tests.control.billing.test_rollup import PRICE
from tests.gateway.metering.rows import row
from tests.gateway.prefixes.prompts import ACME, asked, message
from tools.simulator.trace import read_trace

EVALS = str(UUID(int=77))
RULES = "Answer from the handbook alone. " * 64


@pytest.fixture
async def settings(fresh_postgres_url: str, tmp_path: Path) -> Path:
    """Twenty conversations of three turns, a request nobody could serve, one computed ahead, and one of evals that was
    refused."""
    path = tmp_path / "slipstream.toml"
    path.write_text(f'[local]\ndata = "{tmp_path}"\ndatabase_url = "{fresh_postgres_url}"\n')
    choose, begin_s = random.Random(3), datetime.now(UTC).timestamp() - 3_000
    closed = []
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        metrics = GatewayMetrics(CollectorRegistry())
        observer = PrefixObserver(PrefixDigests(b"secret"))
        samples = PrefixSamples(pool, metrics, observer, PrefixesConfig())
        for number in range(20):
            messages = [message("system", RULES)]
            for turn in range(3):
                messages.append(message("user", f"question {number} {turn} " * 20))
                at_s = begin_s + number * 30 + turn * 10
                request = asked(messages, arrived_s=at_s)
                samples.add(request.request_id, request.caller, request.endpoint, request.prepared)
                closed.append(_closed(choose, request.request_id, at_s, request.prepared.prompt_tokens, 10 + turn))
                messages.append(message("assistant", f"answer {number} {turn}"))
        await samples.stop()
        refused = msgspec.structs.replace(
            _closed(choose, asked([message("user", "x")], arrived_s=begin_s).request_id, begin_s, 0, 0),
            finish=Finish.NOT_PLACED, billed=False, error_code="overloaded", replica_id=None,
        )  # fmt: skip
        ahead = msgspec.structs.replace(
            _closed(choose, asked([message("user", "y")], arrived_s=begin_s).request_id, begin_s, 50, 1), billed=False
        )
        await pool.execute(PRICE)
        await pool.execute("INSERT INTO gateway.organizations (id, name) VALUES ($1, 'acme')", ACME)
        own = msgspec.structs.replace(
            refused,
            opened=msgspec.structs.replace(
                refused.opened,
                request_id=mint(begin_s), organization_id=EVALS, purpose=Purpose.EVALS,
            ),
        )  # fmt: skip
        await pool.execute("INSERT INTO gateway.organizations (id, name, internal) VALUES ($1, 'evals', true)", EVALS)
        await Ledger(pool).insert([*closed, refused, ahead, own], "g")
    return path


def _closed(choose: random.Random, request_id: str, at_s: float, prompt: int, output: int) -> Any:
    made = row(choose, at_s, at_s, request_id)
    opened = msgspec.structs.replace(made.opened, organization_id=ACME, tier=Tier.CHAT, model="small", opened_at=at_s)
    usage = Usage(prompt_tokens=prompt, completion_tokens=output, cached_tokens=choose.randint(0, prompt))
    return msgspec.structs.replace(
        made, opened=opened, usage=usage, closed_at=at_s + 4, finish=Finish.COMPLETE, billed=True
    )


async def run(settings: Path, *arguments: str) -> Any:
    return await asyncio.to_thread(CliRunner().invoke, workload, [*arguments, "--config", str(settings)])


async def test_a_report_and_a_trace_that_simulates(settings: Path, tmp_path: Path, fresh_postgres_url: str) -> None:
    trace = tmp_path / "acme.jsonl"
    result = await run(settings, "--organization", "acme", "--since", "2h", "--export", str(trace), "--json")
    assert result.exit_code == 0, result.output
    (found,) = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    assert (found["requests"], found["not_served"], found["sampled"], found["sessions"]) == (61, 1, 60, 20)
    assert found["turns"] == {"p50": 3, "p95": 3, "p99": 3}
    assert found["gap_s"]["p50"] == pytest.approx(6.0, abs=0.01)
    assert found["output_tokens"] == {"p50": 11, "p95": 12, "p99": 12}
    assert 0.5 < found["reusable_share"] < 1
    assert found["shared_prefixes"][0]["requests"] == 60
    arrivals = read_trace(trace)
    assert len(arrivals) == 60
    assert [round(each.at_s) for each in arrivals[:4]] == [0, 10, 20, 30]
    begins = {each.blocks[0] for each in arrivals}
    assert len(begins) == 1
    written = trace.read_text()
    connection = await asyncpg.connect(fresh_postgres_url)
    digests = await connection.fetchval("SELECT array_agg(DISTINCT b) FROM gateway.prefix_samples, unnest(blocks) b")
    await connection.close()
    assert not any(str(digest) in written for digest in digests)


async def test_every_figure_is_recomputed_from_the_ledgers_rows(settings: Path, fresh_postgres_url: str) -> None:
    result = await run(settings, "--organization", "acme", "--json")
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(result.stdout)
    connection = await asyncpg.connect(fresh_postgres_url)
    rows = await connection.fetch(
        "SELECT request_id, prompt_tokens, cached_tokens, completion_tokens, reusable_tokens FROM gateway.usage_events"
        " LEFT JOIN (SELECT request_id, reusable_tokens FROM gateway.prefix_samples) AS sample USING (request_id)"
        " WHERE (finish <> 'complete' OR billed) AND purpose IS NULL ORDER BY request_id"
    )
    await connection.close()
    served = [row for row in rows if row["prompt_tokens"]]
    assert len(rows) - 1 == len(served) == found["sampled"] == 60
    for name, column in (("prompt_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")):
        assert found[name] == ranks([row[column] for row in served])
    prompts, cached, reusable = (
        sum(row[name] for row in served) for name in ("prompt_tokens", "cached_tokens", "reusable_tokens")
    )
    assert 0 < cached < prompts
    assert (found["cached_share"], found["reusable_share"]) == (cached / prompts, reusable / prompts)
    at_ms = [int(row["request_id"].removeprefix("req_")[:12], 16) for row in rows]
    apart_ms = [later - earlier for earlier, later in itertools.pairwise(at_ms)]
    lasted_ms = at_ms[-1] - at_ms[0]
    assert found["arrivals"] == {
        "rate": pytest.approx(1e3 * (len(rows) - 1) / lasted_ms),
        "interarrival_cv": pytest.approx(cv(apart_ms)),
        "dispersion_1s": pytest.approx(dispersion(at_ms, 1_000)),
        "dispersion_60s": None if lasted_ms < 600_000 else pytest.approx(dispersion(at_ms, 60_000)),
        "busiest_minute": max(Counter(each // 60_000 for each in at_ms).values()),
    }


def ranks(values: list[int]) -> dict[str, int]:
    """The first of the values that so many of a hundred do not exceed."""
    return {
        f"p{percent}": min(
            value for value in values if 100 * sum(each <= value for each in values) >= percent * len(values)
        )
        for percent in (50, 95, 99)
    }


def cv(values: list[int]) -> float:
    """Standard deviation over mean."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


def dispersion(at_ms: list[int], window_ms: int) -> float:
    """Variance over mean of the arrivals in whole windows from the first one on."""
    windows = (at_ms[-1] - at_ms[0]) // window_ms
    counts = [sum(number == (each - at_ms[0]) // window_ms for each in at_ms) for number in range(windows)]
    mean = sum(counts) / windows
    return sum((count - mean) ** 2 for count in counts) / windows / mean


async def test_tables_are_for_people_and_nothing_is_said_of_no_requests(settings: Path) -> None:
    shown = await run(settings, "--tier", "chat")
    assert "shared by requests of acme (chat)" in shown.stdout
    assert ACME not in shown.stdout
    assert "the first   2,048 tokens by      60 requests" in shown.stdout
    assert (await run(settings, "--tier", "autocomplete")).stdout == "no requests in this time\n"
    assert (await run(settings, "--organization", "nobody")).exit_code != 0


async def test_what_evals_ask_is_no_traffic(settings: Path, tmp_path: Path, fresh_postgres_url: str) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    assert await connection.fetchval("SELECT count(*) FROM gateway.usage_events WHERE purpose = 'evals'") == 1
    await connection.close()
    trace = tmp_path / "all.jsonl"
    result = await run(settings, "--since", "2h", "--export", str(trace), "--json")
    (found,) = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    assert (found["organization_id"], found["requests"], len(read_trace(trace))) == (ACME, 61, 60)
    assert "1 that reached no engine are left out" in result.stderr
    assert (await run(settings, "--organization", "evals")).stdout == "no requests in this time\n"
