"""The operators' overview and request anatomy in a real browser: what they show equals the rows in PostgreSQL."""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, Page

from contracts.dated_request_id import mint
from tests.console.pages import Console, expect, seen_by
from tests.console.test_tenants import sign_in
from tests.deployment import Deployment

SENT = 6
TOTALS = """
SELECT count(*) AS requests, sum(completion_tokens) AS completion_tokens, sum(prompt_tokens) AS prompt_tokens,
       sum(cached_tokens) AS cached_tokens,
       percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY ttft_ms) AS ttft,
       percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY tpot_ms) AS tpot
  FROM gateway.request_traces WHERE tier = 'chat' AND model = 'fake' AND pool = 'fake'
"""
MEASURED = """
INSERT INTO gateway.request_traces (
       request_id, organization_id, status, phases_ms, tier, model, pool, replica_id, attempts,
       prompt_tokens, cached_tokens, completion_tokens, total_ms, ttft_ms, tpot_ms, itl_max_ms)
VALUES ($1, $2, 200, '{}', 'chat', 'fake', 'fake', 'fake-0', 1, 100, 25, 10, $3, $4, $5, $5)
"""


async def ask(deployed: Deployment) -> str:
    """A streamed chat request, to its end; its id."""
    body = {
        "model": "fake",
        "messages": [{"role": "user", "content": "how long is a piece of string"}],
        "max_tokens": 8,
        "stream": True,
    }
    headers = {"Authorization": f"Bearer {deployed.key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{deployed.url}/v1/chat/completions", json=body, headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()
        await answer.read()
        return answer.headers["x-request-id"]


@pytest.fixture(scope="module")
async def sent(owner: Console, deployed: Deployment) -> list[str]:
    """Ids of requests whose record is written."""
    ids = [await ask(deployed) for _ in range(SENT)]
    for each in ids:
        await recorded(owner, each)
    async with deployed.database() as database:
        organization = await database.fetchval("SELECT id FROM gateway.organizations LIMIT 1")
        for number in range(40):  # the fake engine's tokens all come at once: others, whose gaps were measured
            first_ms = 20 + 7.5 * number
            await database.execute(MEASURED, mint(), organization, first_ms + 300, first_ms, 4 + 0.3 * number)
    return ids


async def recorded(owner: Console, request_id: str) -> None:
    await owner.until(
        "id => fetch(`/admin/v1/requests/${id}`).then(answer => answer.json()).then(body => body.latency != null)",
        request_id,
    )


async def totals(deployed: Deployment) -> dict[str, Any]:
    async with deployed.database() as database:
        row = await database.fetchrow(TOTALS)
        assert row is not None
        return dict(row)


def milliseconds(value: float) -> str:
    """As the console's format/number.ts."""
    if value < 1:
        return f"{value:.2f} ms"
    if value < 100:
        return f"{value:.1f} ms"
    return f"{value:.0f} ms" if value < 1_000 else f"{value / 1_000:.2f} s"


def same(shown: str, value: float) -> bool:
    """Whether a figure is that value, as it is rounded: JavaScript and Python break ties differently."""
    return shown in {milliseconds(value), milliseconds(value * (1 + 1e-9)), milliseconds(value * (1 - 1e-9))}


async def figures(page: Page, table: str, row: str) -> dict[str, str]:
    """A row's cells by their headings."""
    frame = page.get_by_role("table", name=table)
    headings = await frame.get_by_role("columnheader").all_inner_texts()
    cells = await frame.get_by_role("row", name=re.compile(row)).first.get_by_role("cell").all_inner_texts()
    return {heading.strip(): cell.strip() for heading, cell in zip(headings, cells, strict=True)}


async def test_figures_equal_the_rows(owner: Console, deployed: Deployment, sent: list[str]) -> None:
    page, expected = owner.page, await totals(deployed)
    await owner.go("/operations?tier=chat&model=fake")
    part = page.get_by_role("table", name="By tier, model and pool").get_by_role(
        "row", name=re.compile("fake chat fake")
    )
    count = part.get_by_role("cell").nth(2)
    await expect(count).to_have_text(str(expected["requests"]))
    told = await figures(page, "By tier, model and pool", "fake chat fake")
    for measure, heading in (("ttft", "TTFT"), ("tpot", "TPOT")):
        for value, name in zip(expected[measure], ("p50", "p95", "p99"), strict=True):
            assert same(told[f"{heading} {name}"], value), (heading, name, told, expected)
    share = (expected["cached_tokens"] or 0) / expected["prompt_tokens"]
    assert told["From the cache"] == f"{share * 100:.1f} %"
    await expect(page.locator("dt:text-is('Output tokens') + dd")).to_contain_text(str(expected["completion_tokens"]))
    await expect(page.get_by_role("row", name=re.compile("chat, short prompts"))).to_be_visible()
    await owner.expect_no_faults("operations-overview")


async def test_an_open_overview_hears_of_news(owner: Console, deployed: Deployment, sent: list[str]) -> None:
    """Over one stream, and without being asked again."""
    page = owner.page
    streams = []
    page.on("request", lambda each: streams.append(each.url) if "/admin/v1/events" in each.url else None)
    await owner.go("/operations?period=1h&tier=chat&model=fake")
    await recorded(owner, await ask(deployed))
    part = page.get_by_role("table", name="By tier, model and pool").get_by_role(
        "row", name=re.compile("fake chat fake")
    )
    now = (await totals(deployed))["requests"]
    await expect(part.get_by_role("cell").nth(2)).to_have_text(str(now))
    assert [each.partition("?")[2] for each in streams] == ["topics=slo,usage"]


async def test_a_filter_is_in_the_address(owner: Console, sent: list[str]) -> None:
    page = owner.page
    await owner.go("/operations?model=fake")
    await page.get_by_label("Tier", exact=True).select_option("autocomplete")
    await page.wait_for_url(re.compile("tier=autocomplete"))
    await page.get_by_text("No requests in this period").wait_for()
    await page.get_by_label("Period", exact=True).select_option("7d")
    await page.wait_for_url(re.compile("period=7d"))
    await owner.expect_no_faults("operations-overview-empty")


async def test_requests_of_every_organization_are_listed(owner: Console, sent: list[str]) -> None:
    page = owner.page
    await owner.go("/operations/requests?model=fake&pool=fake")
    await page.get_by_role("link", name=sent[-1][-8:]).wait_for()
    await owner.expect_no_faults("operations-requests")
    await page.get_by_role("link", name=sent[-1][-8:]).click()
    await page.get_by_role("heading", name=sent[-1], level=1).wait_for()
    await owner.go("/operations/requests?model=unheard-of")
    await page.get_by_text("No request matches").wait_for()


async def test_the_anatomy_of_a_request_equals_its_row(owner: Console, deployed: Deployment, sent: list[str]) -> None:
    page = owner.page
    async with deployed.database() as database:
        row = await database.fetchrow(
            "SELECT ttft_ms, prompt_tokens, cached_tokens, replica_id, phases_ms::text AS phases"
            " FROM gateway.request_traces WHERE request_id = $1",
            sent[0],
        )
    assert row is not None
    await owner.go(f"/operations/requests/{sent[0]}")
    await page.get_by_role("heading", name="Why that engine").wait_for()
    engine = await figures(page, "Engines considered", "chosen")
    assert engine["Engine"].split()[0] == row["replica_id"]
    first = await page.locator("dt:text-is('First token') + dd").inner_text()
    assert same(first, row["ttft_ms"])
    cached = await page.locator("dt:text-is('From the cache') + dd").first.inner_text()
    assert cached.startswith(f"{row['cached_tokens'] or 0} tokens")
    assert await page.locator(".waterfall li").count() > 3
    await owner.expect_no_faults("operations-request")


async def test_a_phone_scrolls_down_only(
    browser: Browser, owner: Console, deployed: Deployment, sent: list[str]
) -> None:
    async with seen_by(browser, deployed.url, width=390, height=844) as phone:
        await sign_in(phone)
        for path in ("/operations", "/operations/requests", f"/operations/requests/{sent[0]}"):
            await phone.go(path)
            wide = await phone.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, f"{path} is {wide} pixels wide"
