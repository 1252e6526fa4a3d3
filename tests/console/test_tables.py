"""Lists in a real browser: their order is in the address, CSV has every row and not what is loaded, and rows of any
height stand where the scroll bar says.
"""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Locator, Page, Route

from storage.roles import Role
from tests.console.administered import window_of
from tests.console.pages import Console, expect
from tests.control.api.people import People

CHANGES = 230
"""More than two pages of a list."""
HEIGHTS = """
async list => {
  const heights = {}, frames = count => new Promise(done => {
    const next = left => left === 0 ? done() : requestAnimationFrame(() => next(left - 1));
    next(count);
  });
  const rows = () => [...list.querySelectorAll("tbody tr[aria-rowindex]")];
  for (let at = 0; ; at += 300) {
    list.scrollTop = at;
    await frames(3);
    for (const row of rows()) heights[row.ariaRowIndex] = row.offsetHeight;
    if (list.scrollTop + list.clientHeight >= list.scrollHeight - 1) break;
  }
  const first = Number(rows()[0].ariaRowIndex), above = list.querySelector(".table-spacer").offsetHeight;
  let sum = 0;
  for (let row = 2; row < first; row++) sum += heights[row];
  return {first, above, sum, last: rows().at(-1).ariaRowIndex};
}
"""
"""Scroll a list to its end: how high the space above its first row is there, and the rows that it stands for."""


@pytest.fixture(scope="module")
async def people(people: People) -> People:
    """The tenant `ours` has had many changes."""
    owner = await people.owner()
    path = f"/organizations/{people.organizations['ours']}/projects"
    for number in range(CHANGES):
        await owner.make(path, {"name": f"project {number:03}"})
    return people


@pytest.fixture
async def audit(browser: Browser, people: People) -> AsyncIterator[Console]:
    """The audit log, open."""
    async with window_of(browser, people, await people.principal("ours", Role.OWNER)) as console:
        await console.go(f"/org/{people.organizations['ours']}/audit")
        yield console


def list_of(page: Page) -> Locator:
    return page.get_by_role("region", name="Audit log")


def heading(page: Page, name: str) -> Locator:
    return page.get_by_role("columnheader", name=name)


async def test_an_order_is_in_the_address_and_no_list_is_asked_with_it(audit: Console) -> None:
    page, asked = audit.page, list[str]()
    page.on("request", lambda each: asked.append(each.url) if "/admin/v1/audit" in each.url else None)
    await heading(page, "When").get_by_role("button").click()
    await page.wait_for_url(re.compile(r"sort=audit-log\.at\.asc"))
    await page.get_by_label("Action").fill("project.create")
    await page.wait_for_url(re.compile(r"action=project\.create"))
    assert "sort=audit-log.at.asc" in page.url
    await page.reload()
    await audit.settled()
    await expect(heading(page, "When")).to_have_attribute("aria-sort", "ascending")
    await expect(page.get_by_text("100 loaded and sorted, more below")).to_be_visible()
    await heading(page, "When").get_by_role("button").click()
    await page.wait_for_url(re.compile(r"sort=audit-log\.at\.desc"))
    await heading(page, "When").get_by_role("button").click()
    await expect(heading(page, "When")).not_to_have_attribute("aria-sort", re.compile(""))
    assert "sort" not in page.url
    assert asked
    assert not [url for url in asked if "sort" in url]
    await audit.go(f"{page.url.partition('/console')[2].partition('?')[0]}?sort=audit-log.no-such.asc&unknown=1")
    await expect(page.get_by_role("table", name="Audit log")).to_be_visible()
    await audit.expect_no_faults("audit, of an order that is none")


async def test_csv_has_every_row_in_the_order_that_is_shown(audit: Console) -> None:
    page = audit.page
    await audit.go(f"{page.url.partition('/console')[2]}?action=project.create&sort=audit-log.at.asc")
    async with page.expect_download() as saved:
        await page.get_by_role("button", name="CSV").click()
    download = await saved.value
    assert download.suggested_filename == "audit.csv"
    rows = list(csv.DictReader(io.StringIO((await download.path()).read_text())))
    assert len(rows) == CHANGES
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    await expect(page.get_by_text("100 loaded and sorted, more below")).to_be_visible()


async def test_csv_tells_how_far_it_is_and_can_be_left(audit: Console) -> None:
    page, held, downloads = audit.page, asyncio.Event(), list[object]()
    page.on("download", lambda each: downloads.append(each))

    async def hold(route: Route) -> None:
        await held.wait()
        await route.continue_()

    await page.route(re.compile(r"/admin/v1/audit\?.*cursor="), hold)
    await page.get_by_role("button", name="CSV").click()
    await expect(page.get_by_role("status").get_by_text("Reading rows for CSV: 100")).to_be_visible()
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("button", name="CSV")).to_be_visible()
    async with page.expect_response(re.compile(r"/admin/v1/audit\?.*cursor=")):
        held.set()
    async with page.expect_download() as saved:  # another time, and none before it
        await page.get_by_role("button", name="CSV").click()
    await saved.value
    assert len(downloads) == 1


async def test_rows_stand_where_their_heights_say(audit: Console) -> None:
    page = audit.page
    table = page.get_by_role("table", name="Audit log")
    await expect(table).to_have_attribute("aria-rowcount", "-1")
    more = page.get_by_role("button", name="Load more")
    while await table.get_attribute("aria-rowcount") == "-1":
        if await more.count():
            await more.click()
        await expect(page.get_by_role("button", name="Working…")).to_have_count(0)
    total = int(await table.get_attribute("aria-rowcount") or 0)
    assert total > CHANGES
    found = await list_of(page).evaluate(HEIGHTS)
    assert found["last"] == str(total)
    assert found["first"] > 2, "all rows are there: nothing is virtual"
    assert found["above"] == pytest.approx(found["sum"], abs=2)
