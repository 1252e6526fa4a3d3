"""Numbers on the pages equal what single rows of the ledger and of requests add up to."""

from __future__ import annotations

import csv
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from contracts.length_class import length_class
from contracts.objectives import OBJECTIVES
from gateway.metering.journal.request_id import mint
from gateway.slo.judgement import TraceRow, judge
from tests.console.figures import GROUPS, ROWS, amount, sums, tenant
from tests.console.pages import Console
from tests.deployment import Deployment

COLUMNS = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
UNTIL_ADDED_UP_MS = 30_000
TRACE = """
INSERT INTO gateway.request_traces (request_id, organization_id, status, error_code, phases_ms, tier, model, pool,
       attempts, prompt_tokens, cached_tokens, completion_tokens, total_ms, ttft_ms, tpot_ms, itl_max_ms, service_class)
VALUES ($1, $2, $3, $4, '{}', $5, 'fake', 'fake', 1, $6, 0, 10, $7, $8, $9, $10, $11)
"""
NUMBER = re.compile(r"[\d,]+")


@pytest.fixture(scope="module")
async def counted(owner: Console, deployed: Deployment) -> UUID:
    """An organization whose week the worker has added up."""
    async with deployed.database() as database:
        organization = await tenant(database)
        billed = await database.fetchval(
            "SELECT count(*) FROM gateway.usage_events WHERE organization_id = $1 AND billed", organization
        )
    await owner.go(f"/org/{organization}/usage?period=90d")
    await expect(figure(owner.page, "Requests")).to_have_text(f"{billed:,}", timeout=UNTIL_ADDED_UP_MS)
    assert 0 < billed < ROWS
    return organization


def figure(page: Page, name: str) -> Any:
    """One of those that stand large at the top."""
    return page.locator(f"dt:text-is('{name}') + dd")


async def asked_period(owner: Console, path: str) -> tuple[datetime, datetime]:
    """Open a page; of which time it asks for totals."""
    # the page before may be asking anew at this moment, for another period
    await owner.page.goto("about:blank")
    async with owner.page.expect_request(lambda each: "/admin/v1/" in each.url and "/usage?" in each.url) as caught:
        await owner.go(path)
    asked = parse_qs(urlsplit((await caught.value).url).query)
    start, end = (datetime.fromisoformat(asked[name][0]) for name in ("start", "end"))
    return start, end


@pytest.mark.parametrize("period", ["7d", "30d", "month"])
@pytest.mark.parametrize("by", list(GROUPS))
async def test_usage_equals_the_ledger(
    owner: Console, deployed: Deployment, counted: UUID, by: str, period: str
) -> None:
    page = owner.page
    grouped = "" if by == "all" else f"&by={by}"
    start, end = await asked_period(owner, f"/org/{counted}/usage?period={period}{grouped}")
    async with deployed.database() as database:
        expected = await sums(database, counted, by, start, end)
        [whole] = (await sums(database, counted, "all", start, end)).values()
    rows = page.get_by_role("table", name="Usage by group").locator("tbody tr")
    await expect(rows).to_have_count(len(expected))
    told = {}
    for row in await rows.all():
        name, *cells = [each.strip() for each in await row.get_by_role("cell").all_inner_texts()]
        told[name] = cells
    # named "backend staging", of the project "backend"
    projects = {name: [name.split()[0]] if by == "key" else [] for name in expected}
    assert told == {
        name: [*projects[name], *(f"{of[column]:,}" for column in COLUMNS), amount(of["amount_micro"])]
        for name, of in expected.items()
    }
    assert await figure(page, "Cost").inner_text() == amount(whole["amount_micro"])
    assert await figure(page, "Input tokens").inner_text() == f"{whole['prompt_tokens']:,}"
    assert await figure(page, "Output tokens").inner_text() == f"{whole['completion_tokens']:,}"
    share = whole["cached_tokens"] / whole["prompt_tokens"]
    assert await figure(page, "Input from the cache").inner_text() == f"{share * 100:.1f} %"


async def test_a_filter_and_the_period_before_equal_the_ledger(
    owner: Console, deployed: Deployment, counted: UUID
) -> None:
    page = owner.page
    start, end = await asked_period(owner, f"/org/{counted}/usage?period=7d&by=model&figure=requests&compare=true")
    async with deployed.database() as database:
        now = await sums(database, counted, "model", start, end)
        before = await sums(database, counted, "model", start - (end - start), start)
    for name, of in now.items():
        row = page.get_by_role("table", name="Usage by group").get_by_role("row", name=name)
        last = await row.get_by_role("cell").last.inner_text()
        assert last.split()[0] == f"{before[name]['requests']:,}", (name, last)
        share = (of["requests"] - before[name]["requests"]) / before[name]["requests"]
        assert f"{abs(share) * 100:.1f} %" in last
    await owner.go(f"/org/{counted}/usage?period=7d&by=model&model=counted-wide")
    assert await figure(page, "Requests").inner_text() == f"{now['counted-wide']['requests']:,}"


async def test_what_is_downloaded_equals_the_ledger(owner: Console, deployed: Deployment, counted: UUID) -> None:
    page = owner.page
    start, end = await asked_period(owner, f"/org/{counted}/usage?period=30d&by=key")
    async with page.expect_download() as caught:
        await page.get_by_role("button", name="CSV").click()
    lines = list(csv.DictReader((await (await caught.value).path()).read_text().splitlines()))
    async with deployed.database() as database:
        expected = await sums(database, counted, "key", start, end)
    assert {line["key"]: [int(line[column]) for column in COLUMNS] for line in lines} == {
        name: [of[column] for column in COLUMNS] for name, of in expected.items()
    }
    for line in lines:
        assert round(float(line["amount"]) * 1e6) == expected[line["key"]]["amount_micro"]


async def test_the_invoice_equals_the_ledger(owner: Console, deployed: Deployment, counted: UUID) -> None:
    page = owner.page
    begin = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month = f"{begin:%Y-%m}"
    await owner.go(f"/org/{counted}/invoices?month={month}")
    async with deployed.database() as database:
        [whole] = (await sums(database, counted, "all", begin, begin + timedelta(days=32))).values()
        by_key = await sums(database, counted, "key", begin, begin + timedelta(days=32))
    assert (await figure(page, "Amount").inner_text()).split()[0] == amount(whole["amount_micro"])
    assert await figure(page, "Requests").inner_text() == f"{whole['requests']:,}"
    rows = page.get_by_role("table", name=re.compile("^Invoice of")).locator("tbody tr")
    requests: Counter[str] = Counter()
    for row in await rows.all():
        cells = [each.strip() for each in await row.get_by_role("cell").all_inner_texts()]
        requests[cells[1]] += int(cells[4].replace(",", ""))
    assert requests == {name: of["requests"] for name, of in by_key.items()}


async def test_a_tenants_overview_equals_the_ledger(owner: Console, deployed: Deployment, counted: UUID) -> None:
    start, end = await asked_period(owner, f"/org/{counted}")
    async with deployed.database() as database:
        [whole] = (await sums(database, counted, "all", start, end)).values()
    page = owner.page
    assert await figure(page, "Requests").inner_text() == f"{whole['requests']:,}"
    assert await figure(page, "Cost").inner_text() == amount(whole["amount_micro"])
    share = whole["cached_tokens"] / whole["prompt_tokens"]
    assert await figure(page, "From the cache").inner_text() == f"{share * 100:.1f} %"


async def test_objectives_equal_what_each_request_kept(owner: Console, deployed: Deployment, counted: UUID) -> None:
    """Judged one by one by the plain rules; half an hour of requests that keep and break each promise."""
    at = datetime.now(UTC) - timedelta(minutes=45)
    kept: Counter[tuple[str, str]] = Counter()
    of: Counter[tuple[str, str]] = Counter()
    async with deployed.database() as database:
        await database.execute("DELETE FROM gateway.request_traces")
        for table in ("slo_minutes", "slo_hours", "serving_minutes", "serving_hours"):
            await database.execute(f"DELETE FROM gateway.{table}")
        for number in range(400):
            objective = OBJECTIVES[number % len(OBJECTIVES)]
            tokens = {"short": 900, "medium": 9_000, "long": 40_000}[objective.length]
            ttft_ms = objective.ttft_ms * (0.4, 0.9, 1.0, 1.1)[number // 7 % 4]
            tpot_ms = None if objective.tpot_ms is None else objective.tpot_ms * (0.5, 1.2, 0.8)[number // 11 % 3]
            gap_ms = None if objective.itl_max_ms is None else objective.itl_max_ms * (0.9, 0.2, 3.0)[number // 5 % 3]
            status, code = ((200, None), (200, None), (429, "rate_limit_exceeded"), (502, "engine_failed"))[number % 4]
            offline = "offline" if number % 13 == 0 else "standard"
            row = TraceRow(
                status=status,
                error_code=code,
                total_ms=9_000.0,
                ttft_ms=ttft_ms,
                tpot_ms=tpot_ms,
                itl_max_ms=gap_ms,
                completion_tokens=10,
                service_class=offline,
            )
            moment_s = (at + timedelta(seconds=4 * number)).timestamp()
            await database.execute(
                TRACE, mint(moment_s), counted, status, code, objective.tier, tokens, 9_000.0, ttft_ms, tpot_ms, gap_ms,
                offline,
            )  # fmt: skip
            judgement = judge(row, objective)
            assert length_class(tokens) == objective.length
            of[objective.tier, objective.length] += judgement.counted
            kept[objective.tier, objective.length] += judgement.good
    page = owner.page
    assert 0 < sum(kept.values()) < sum(of.values()) < 400
    await owner.go("/operations/slo?period=24h")
    for objective in OBJECTIVES:
        key = objective.tier, objective.length
        line = page.get_by_role("table", name="Objectives").get_by_role(
            "row", name=re.compile(f"^{objective.tier}, {objective.length} prompts")
        )
        cell = line.get_by_role("cell").nth(2)
        await expect(cell).to_contain_text(f"{of[key]:,} requests", timeout=UNTIL_ADDED_UP_MS)
        assert (await cell.inner_text()).startswith(f"{kept[key] / of[key] * 100:.2f} %"), (key, kept[key], of[key])
