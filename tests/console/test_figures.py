"""Numbers on the pages equal what single rows of the ledger and of requests add up to."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import asyncpg
import msgspec
import pytest
from playwright.async_api import Browser, Page

from contracts.dated_request_id import mint
from contracts.errors import Overloaded
from contracts.length_class import length_class
from contracts.objectives import OBJECTIVES, Objective
from control.billing.rollup import roll_up as roll_up_usage
from control.fleet import edits
from control.fleet.revision import write
from control.prefixes.rollup import roll_up as roll_up_prefixes
from control.slo.adoption import adopt
from control.slo.judgement import TraceRow, failed, judge
from control.slo.rollup import roll_up as roll_up_slo
from storage.roles import Role
from tests.console.administered import window_of
from tests.console.figures import (
    APART,
    BILLED,
    BY_DAY,
    GROUPS,
    PREFIX_SAMPLES,
    PREFIX_SHARES,
    ROWS,
    apart,
    cents,
    exact_money,
    money,
    month_with_rows,
    short,
    sums,
    tenant,
)
from tests.console.pages import Console, expect
from tests.console.quality import put_windows
from tests.control.api.people import People

COLUMNS = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
TRACE = """
INSERT INTO gateway.request_traces (request_id, organization_id, status, error_code, phases_ms, tier, model, pool,
       attempts, prompt_tokens, cached_tokens, completion_tokens, total_ms, ttft_ms, tpot_ms, itl_max_ms, service_class)
VALUES ($1, $2, $3, $4, '{}', $5, 'wide', 'one', 1, $6, 0, 10, $7, $8, $9, $10, $11)
"""
PRICE = 3.6
"""Of a replica-hour."""


@dataclass(frozen=True)
class Books:
    """The database of a gateway that has neither router nor worker: what a worker adds up is added up here."""

    people: People
    database_url: str

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        """One connection for all."""
        yield self.people.database


@pytest.fixture(scope="module")
def books(people: People, module_postgres_url: str) -> Books:
    return Books(people, module_postgres_url)


@pytest.fixture(scope="module")
async def owner(browser: Browser, books: Books) -> AsyncIterator[Console]:
    """Who runs the deployment."""
    async with window_of(browser, books.people, await books.people.principal("operator", Role.OWNER)) as console:
        yield console


@pytest.fixture(scope="module")
async def counted(books: Books) -> UUID:
    """An organization whose weeks are added up."""
    async with books.database() as database:
        organization = await tenant(database)
        billed = await database.fetchval(
            "SELECT count(*) FROM gateway.usage_events WHERE organization_id = $1 AND billed", organization
        )
    assert 0 < billed < ROWS
    await asyncio.to_thread(roll_up_usage, books.database_url)
    return organization


def figure(page: Page, name: str) -> Any:
    """One of those that stand large at the top."""
    return page.locator(f"dt:text-is('{name}') + dd")


async def asked_period(owner: Console, path: str) -> tuple[datetime, datetime]:
    """Open a page; of which time it asks for totals."""
    # the page before may be asking anew at this moment, for another period
    await owner.page.goto("about:blank")
    # the filter of models asks for a year, without an end
    async with owner.page.expect_request(lambda each: "/usage?" in each.url and "end=" in each.url) as caught:
        await owner.go(path)
    asked = parse_qs(urlsplit((await caught.value).url).query)
    start, end = (datetime.fromisoformat(asked[name][0]) for name in ("start", "end"))
    return start, end


@pytest.mark.parametrize(("by", "period"), [*zip(GROUPS, ("90d", "24h", "7d", "month", "30d"), strict=True)])
async def test_usage_equals_the_ledger(owner: Console, books: Books, counted: UUID, by: str, period: str) -> None:
    page = owner.page
    grouped = f"&by={'nothing' if by == 'all' else by}"
    start, end = await asked_period(owner, f"/org/{counted}/usage?period={period}{grouped}")
    async with books.database() as database:
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
        name: [*projects[name], *(f"{of[column]:,}" for column in COLUMNS), money(of["amount_micro"])]
        for name, of in expected.items()
    }
    assert await figure(page, "Cost").inner_text() == money(whole["amount_micro"])
    assert await figure(page, "Input tokens").inner_text() == f"{whole['prompt_tokens']:,}"
    assert await figure(page, "Output tokens").inner_text() == f"{whole['completion_tokens']:,}"
    share = whole["cached_tokens"] / whole["prompt_tokens"]
    assert await figure(page, "Input from the cache").inner_text() == f"{share * 100:.1f} %"


async def test_a_filter_and_the_period_before_equal_the_ledger(owner: Console, books: Books, counted: UUID) -> None:
    page = owner.page
    start, end = await asked_period(owner, f"/org/{counted}/usage?period=7d&by=model&figure=requests&compare=true")
    async with books.database() as database:
        now = await sums(database, counted, "model", start, end)
        before = await sums(database, counted, "model", start - (end - start), start)
    await page.get_by_role("columnheader", name="Requests before").wait_for()  # once its totals are known
    for name, of in now.items():
        row = page.get_by_role("table", name="Usage by group").get_by_role("row", name=name)
        last = await row.get_by_role("cell").last.inner_text()
        assert last.split()[0] == f"{before[name]['requests']:,}", (name, last)
        share = (of["requests"] - before[name]["requests"]) / before[name]["requests"]
        assert f"{abs(share) * 100:.1f} %" in last
    await owner.go(f"/org/{counted}/usage?period=7d&by=model&model=counted-wide")
    assert await figure(page, "Requests").inner_text() == f"{now['counted-wide']['requests']:,}"


async def test_what_is_downloaded_equals_the_ledger(owner: Console, books: Books, counted: UUID) -> None:
    page = owner.page
    start, end = await asked_period(owner, f"/org/{counted}/usage?period=30d&by=key")
    async with page.expect_download() as caught:
        await page.get_by_role("button", name="CSV").click()
    lines = list(csv.DictReader((await (await caught.value).path()).read_text().splitlines()))
    async with books.database() as database:
        expected = await sums(database, counted, "key", start, end)
    assert {line["key"]: [int(line[column]) for column in COLUMNS] for line in lines} == {
        name: [of[column] for column in COLUMNS] for name, of in expected.items()
    }
    assert {line["currency"] for line in lines} == {"USD"}
    for line in lines:
        assert round(float(line["amount"]) * 1e6) == expected[line["key"]]["amount_micro"]


async def test_the_invoice_equals_the_ledger(owner: Console, books: Books, counted: UUID) -> None:
    page = owner.page
    begin = month_with_rows()
    month = f"{begin:%Y-%m}"
    await owner.go(f"/org/{counted}/invoices?month={month}")
    end = (begin + timedelta(days=32)).replace(day=1)
    async with books.database() as database:
        [whole] = (await sums(database, counted, "all", begin, end)).values()
        by_key = await sums(database, counted, "key", begin, end)
    assert await figure(page, "Total").inner_text() == money(whole["amount_micro"])
    assert await figure(page, "Requests").inner_text() == f"{whole['requests']:,}"
    rows = page.get_by_role("table", name=re.compile("^Invoice of")).locator("tbody tr")
    requests: Counter[str] = Counter()
    for row in await rows.all():
        cells = [each.strip() for each in await row.get_by_role("cell").all_inner_texts()]
        requests[cells[1]] += int(cells[4].replace(",", ""))
    assert requests == {name: of["requests"] for name, of in by_key.items()}


async def test_an_invoice_on_paper_has_names_period_lines_and_total_and_nothing_to_click(
    owner: Console, counted: UUID
) -> None:
    page = owner.page
    begin = month_with_rows()
    await owner.go(f"/org/{counted}/invoices?month={begin:%Y-%m}")
    await page.emulate_media(media="print", color_scheme="dark")
    paper = page.locator("main")
    await expect(paper.get_by_role("heading", name=f"Invoice: counted, {begin:%B %Y}")).to_be_visible()
    await expect(paper.get_by_text(f"1 {begin:%B %Y} to ")).to_be_visible()
    await expect(paper.get_by_text("is rounded to a millionth of a USD; this")).to_be_visible()
    await expect(figure(page, "Total")).to_be_visible()
    assert await page.get_by_role("table", name=re.compile("^Invoice of")).locator("tbody tr").count() > 1
    for hidden in (page.get_by_role("navigation"), page.get_by_role("search"), page.locator(".button")):
        assert [await each.is_visible() for each in await hidden.all()].count(True) == 0
    surface = await page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    assert surface == "rgb(255, 255, 255)", "paper is light"
    await page.emulate_media(media="screen", color_scheme="light")


async def test_a_tenants_overview_equals_the_ledger(owner: Console, books: Books, counted: UUID) -> None:
    start, end = await asked_period(owner, f"/org/{counted}")
    async with books.database() as database:
        [whole] = (await sums(database, counted, "all", start, end)).values()
    page = owner.page
    billed = await figure(page, "Billed requests").inner_text()
    assert billed == f"{whole['requests']:,} refused ones cost nothing"
    assert await figure(page, "Cost").inner_text() == cents(whole["amount_micro"])
    exact = figure(page, "Cost").locator("[title]")
    assert await exact.get_attribute("title") == exact_money(whole["amount_micro"])
    share = whole["cached_tokens"] / whole["prompt_tokens"]
    assert await figure(page, "From the cache").inner_text() == f"{share * 100:.1f} %"


async def test_what_a_chart_tells_under_the_pointer_equals_the_ledger(
    owner: Console, books: Books, counted: UUID
) -> None:
    page = owner.page
    start, end = await asked_period(owner, f"/org/{counted}/usage?period=7d&by=model&figure=requests")
    async with books.database() as database:
        rows = await database.fetch(BY_DAY, counted, start, end)
    models = {row["model"] for row in rows}
    # soon after midnight a day may have requests of one model alone
    expected: dict[str, dict[str, str]] = defaultdict(lambda: dict.fromkeys(models, short(0)))
    for row in rows:
        expected[f"{row['day']:%Y-%m-%d}"][row["model"]] = short(row["requests"])
    figure_of = page.locator("figure.chart")
    area = await figure_of.locator(".u-over").bounding_box()
    assert area is not None
    told: dict[str, dict[str, str]] = {}
    for step in range(1, 60):
        await page.mouse.move(area["x"] + area["width"] * step / 60, area["y"] + area["height"] / 2)
        when, *values = (await figure_of.locator("output").inner_text()).split(" · ")
        told[when[:10]] = dict(each.split(": ") for each in values)
    assert told == expected


async def test_shares_of_prefixes_equal_each_sample(owner: Console, books: Books, counted: UUID) -> None:
    async with books.database() as database:
        await database.execute(PREFIX_SAMPLES, counted)
        await asyncio.to_thread(roll_up_prefixes, books.database_url, sample_retention_days=30)
        rows = {row["model"]: row for row in await database.fetch(PREFIX_SHARES, counted)}
    whole = {name: sum(int(row[name]) for row in rows.values()) for name in (*COLUMNS[:3], "reusable_tokens")}
    page = owner.page
    await owner.go(f"/org/{counted}/prefixes")
    assert await figure(page, "Requests").inner_text() == short(whole["requests"])
    assert await figure(page, "Prompt tokens").inner_text() == short(whole["prompt_tokens"])
    assert await figure(page, "Reusable").inner_text() == share(whole["reusable_tokens"], whole["prompt_tokens"])
    assert await figure(page, "Reused").inner_text() == share(whole["cached_tokens"], whole["prompt_tokens"])
    lines = page.get_by_role("table", name="Templates").locator("tbody tr")
    await expect(lines).to_have_count(len(rows))
    for line in await lines.all():
        _, model, *cells = [each.strip() for each in await line.get_by_role("cell").all_inner_texts()]
        of = rows[model]
        assert cells[:3] == [
            f"{of['requests']:,}", share(of["reusable_tokens"], of["prompt_tokens"]),
            share(of["cached_tokens"], of["prompt_tokens"]),
        ]  # fmt: skip


async def test_reconciliation_adds_up_its_windows(owner: Console, books: Books) -> None:
    async with books.database() as database:
        await put_windows(database)
        engines = ["old-0", "new-0"]
        whole, *each = [await database.fetchrow(APART, name) for name in ("", *engines)]
    page = owner.page
    await owner.go("/operations/reconciliation")
    assert await figure(page, "Windows that differ").inner_text() == f"{whole['differ']} of {whole['windows']}"
    for name in ("prompt", "completion"):
        expected = apart(whole[f"{name}_plus"], whole[f"{name}_minus"])
        assert await figure(page, f"Difference in {name} tokens").inner_text() == expected
    for name, of in zip(engines, each, strict=True):
        row = page.get_by_role("table", name="By engine").get_by_role("row", name=re.compile(f"^{name}"))
        cells = ["".join(cell.split()) for cell in await row.get_by_role("cell").all_inner_texts()]
        assert cells[1:6] == [
            f"{of['windows']}", f"{of['differ']}", f"{of['counted']:,}",
            apart(of["prompt_plus"], of["prompt_minus"]).replace(" ", ""),
            apart(of["completion_plus"], of["completion_minus"]).replace(" ", ""),
        ]  # fmt: skip


async def test_objectives_and_the_deployment_equal_what_became_of_each_request(
    owner: Console, books: Books, counted: UUID
) -> None:
    """Judged one by one by the plain rules; half an hour of requests that keep and break each promise."""
    at = datetime.now(UTC) - timedelta(minutes=45)
    kept: Counter[tuple[str, str]] = Counter()
    of: Counter[tuple[str, str]] = Counter()
    became: Counter[str] = Counter()
    by_hour: dict[str, Counter[str]] = defaultdict(Counter)
    good_tokens = 0
    async with books.database() as database:
        await database.execute("DELETE FROM gateway.request_traces")
        for table in ("slo_minutes", "slo_hours", "serving_minutes", "serving_hours"):
            await database.execute(f"DELETE FROM gateway.{table}")
        await price_of_pools(database, at - timedelta(minutes=15))
        for number in range(400):
            objective = OBJECTIVES[number % len(OBJECTIVES)]
            tokens = {"short": 900, "medium": 9_000, "long": 40_000}[objective.length]
            ttft_ms = objective.ttft_ms * (0.4, 0.9, 1.0, 1.1)[number // 7 % 4]
            tpot_ms = None if objective.tpot_ms is None else objective.tpot_ms * (0.5, 1.2, 0.8)[number // 11 % 3]
            gap_ms = None if objective.itl_max_ms is None else objective.itl_max_ms * (0.9, 0.2, 3.0)[number // 5 % 3]
            status, code = ((200, None), (200, None), (429, "rate_limit_exceeded"), (502, "engine_failed"))[number % 4]
            if number % 20 == 3:
                status, code = 503, Overloaded.code
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
            good_tokens += 10 * judgement.good
            for each in (became, by_hour[f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:00}"]):
                each["requests"] += 1
                each["counted"] += judgement.counted
                each["good"] += judgement.good
                each["failed"] += failed(row)
                each["shed"] += code == Overloaded.code
                each["limited"] += status == 429
        await adopt(database, OBJECTIVES)
    await asyncio.to_thread(roll_up_slo, books.database_url, trace_retention_days=30)
    page = owner.page
    assert 0 < sum(kept.values()) < sum(of.values()) < 400
    await owner.go("/operations/slo?period=24h")
    for objective in OBJECTIVES:
        key = objective.tier, objective.length
        line = page.get_by_role("table", name="Objectives").get_by_role(
            "row", name=re.compile(f"^{objective.tier}, {objective.length} prompts")
        )
        cell = line.get_by_role("cell").nth(2)
        await expect(cell).to_contain_text(f"{of[key]:,} requests")
        assert (await cell.inner_text()).startswith(f"{kept[key] / of[key] * 100:.2f} %"), (key, kept[key], of[key])
        shown = (await line.get_by_role("cell").nth(3).inner_text()).split("\n")[0]
        assert shown == budget_left(objective, kept[key], of[key])
    assert await figure(page, "Goodput").inner_text() == share(became["good"], became["counted"], 2)
    for name in ("failed by us", "shed", "limited"):
        assert await figure(page, name.capitalize()).inner_text() == short(became[name.split()[0]])
    await expect_cost_of_the_pool(page, at - timedelta(minutes=15), good_tokens)
    await expect_the_deployments_page(owner, books, became, by_hour)
    for objective in OBJECTIVES:
        key = objective.tier, objective.length
        line = page.get_by_role("table", name="Error budgets").get_by_role(
            "row", name=re.compile(f"^{objective.tier}, {objective.length} prompts")
        )
        cells = await line.get_by_role("cell").all_inner_texts()
        assert cells[3:5] == [share(kept[key], of[key], 2), budget_left(objective, kept[key], of[key])], key


def budget_left(objective: Objective, kept: int, counted: int) -> str:
    """As the console's format/budget.ts."""
    left = 1 - (1 - kept / counted) / (1 - objective.target)
    if counted * (1 - objective.target) < 1:
        return "–"
    return f"{left * 100:.1f} %" if left >= 0 else f"spent {1 - left:.1f} times"


async def price_of_pools(database: asyncpg.Connection, since: datetime) -> None:
    """A price for the pool `one`, as if it had been there since that moment."""
    async with database.transaction():
        await write(
            database,
            lambda state: edits.put_pool(
                state, msgspec.structs.replace(edits.find_pool(state, "one"), price_per_replica_hour=PRICE)
            ),
            actor="tests",
            action="put",
        )
        await database.execute(
            "DELETE FROM gateway.desired_states WHERE version < (SELECT max(version) FROM gateway.desired_states)"
        )
        await database.execute("UPDATE gateway.desired_states SET created_at = $1", since)


async def expect_cost_of_the_pool(page: Page, since: datetime, good_tokens: int) -> None:
    """One replica since that moment; the period ends when the page asked, which is between two looks at the clock."""
    line = page.get_by_role("table", name="Cost of good tokens by pool").get_by_role("row", name=re.compile("^one"))
    cells = await line.get_by_role("cell").all_inner_texts()
    most_h = (datetime.now(UTC) - since) / timedelta(hours=1)
    hours, cost, per_million = (float(cells[place].removesuffix("\xa0USD").replace(",", "")) for place in (1, 2, 4))
    assert most_h - 0.05 < hours < most_h + 0.01
    assert abs(cost - hours * PRICE) < PRICE / 60 + 0.01  # of whole minutes
    assert cells[3] == short(good_tokens)
    assert abs(per_million - cost / good_tokens * 1e6) <= 0.01 * 1e6 / good_tokens


async def expect_the_deployments_page(
    owner: Console, books: Books, became: Counter[str], by_hour: dict[str, Counter[str]]
) -> None:
    """Its figures, the hours that its charts draw, and what was billed in these hours."""
    page = owner.page
    await page.goto("about:blank")
    async with page.expect_request(lambda each: "/admin/v1/usage?" in each.url and "end=" in each.url) as caught:
        await owner.go("/operations?period=24h")
    asked = parse_qs(urlsplit((await caught.value).url).query)
    start, end = (datetime.fromisoformat(asked[name][0]) for name in ("start", "end"))
    begin, past = start.replace(minute=0, second=0, microsecond=0), end + timedelta(hours=1, microseconds=-1)
    async with books.database() as database:
        billed = await database.fetchval(BILLED, begin, past.replace(minute=0, second=0, microsecond=0))
    requests = became["requests"]
    await expect(figure(page, "Requests")).to_contain_text(short(requests))
    assert await figure(page, "Billed").inner_text() == f"{cents(billed)} full hours only"
    goodput = share(became["good"], became["counted"], 2)
    assert await figure(page, "Goodput").inner_text() == f"{goodput} of {short(became['counted'])}"
    for name in ("shed", "failed", "limited"):
        told = await figure(page, name.capitalize()).inner_text()
        assert told == f"{share(became[name], requests, 2)} {became[name]:,}"
    lines = page.get_by_role("table", name="Figures by hour").locator("tbody tr")
    await expect(lines).to_have_count(len(by_hour))
    for line in await lines.all():
        cells = await line.get_by_role("cell").all_inner_texts()
        each = by_hour[cells[0]]
        assert cells[1:4] == [
            f"{each['requests']:,}", share(each["good"], each["counted"]), share(each["shed"], each["requests"]),
        ]  # fmt: skip


def share(part: float, whole: float, digits: int = 1) -> str:
    """As the console writes a part."""
    return f"{float(part / whole) * 100:.{digits}f} %"
