"""What the console tells an administrator and a viewer of a tenant, in a real browser: what limits them and where that
is set, whose key a request came with, and nothing as missing or as theirs to make that is not.
"""

from __future__ import annotations

import re
from uuid import uuid4

from playwright.async_api import Browser

from storage.roles import Role
from tests.console.administered import window_of
from tests.console.pages import expect, made
from tests.control.api.examples import things_of
from tests.control.api.people import People


async def emptied(people: People, name: str) -> str:
    """A new organization instead of a tenant's: nothing is in it. Its id."""
    found = await people.database.fetchval("INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id", name)
    people.organizations[name] = found
    return str(found)


async def test_an_administrator_presses_once_to_make_a_project_and_sees_what_limits_its_key(
    browser: Browser, people: People
) -> None:
    name = f"tenant {uuid4().hex[:6]}"
    organization = await emptied(people, name)
    async with window_of(browser, people, await people.principal(name, Role.ADMIN)) as console:
        page = console.page
        await console.go(f"/org/{organization}/limits")
        await page.get_by_text("Neither the organization nor any of its projects and keys has a limit.").wait_for()
        await page.get_by_role("heading", name="No limit at this level").wait_for()

        await console.go(f"/org/{organization}")
        await page.get_by_role("link", name="Make a project").click()
        dialog = page.get_by_role("dialog", name="New project")
        await dialog.get_by_label("Name").fill("backend")
        await dialog.get_by_role("button", name="Make project").click()
        await page.get_by_role("heading", name="backend", level=1).wait_for()
        project = page.url.rsplit("/", 1)[1]
        await page.go_back()
        await page.get_by_role("link", name="backend").wait_for()
        await expect(dialog).to_have_count(0)

        key = await made(console, f"/projects/{project}/keys", {"name": "production"})
        limits = {"requests_per_minute": 60, "money_micro_per_month": 12_500_000}
        await made(console, f"/limits/key/{key['key']['id']}/all", limits, "PUT")
        await console.go(f"/org/{organization}/limits")
        within = page.get_by_role("table", name="Limits within").locator("tbody tr")
        await expect(within).to_have_count(1)
        cells = [cell.replace("\xa0", " ") for cell in await within.get_by_role("cell").all_inner_texts()]
        assert cells[:4] == [
            "production",
            "a key of backend",
            "all tiers",
            "Requests per minute: 60; Budget per month (UTC): 12.50 USD",
        ]
        await expect(page.get_by_role("heading", name="No limits")).to_have_count(0)
        await console.expect_no_faults("limits within an organization")
        await within.get_by_role("link", name="production").click()
        effective = page.get_by_role("table", name="Effective limits")
        await expect(effective.get_by_role("row", name=re.compile("^chat.*Budget.*12.50.USD.*the key"))).to_have_count(
            1
        )


async def test_a_viewer_is_told_whose_key_it_was_and_nothing_to_make(browser: Browser, people: People) -> None:
    things = await things_of(people, "ours")
    name = await people.database.fetchval("SELECT name FROM gateway.api_keys WHERE id = $1", things["key_id"])
    async with window_of(browser, people, await people.principal("ours", Role.VIEWER)) as console:
        page = console.page
        await console.go(f"/org/{people.organizations['ours']}/requests/{things['request_id']}")
        fact = page.locator("dt:text-is('Key') + dd")
        await expect(fact.get_by_role("link")).to_have_text(name)
        await expect(page.locator("dt:text-is('Key’s id') + dd")).to_have_text(str(things["key_id"]))
        assert re.search(r"\d\.\d\d\sUSD$", await page.locator("dt:text-is('Cost') + dd").inner_text())
        await fact.get_by_role("link").click()
        await page.get_by_role("heading", name=name, level=1).wait_for()
    empty = f"empty {uuid4().hex[:6]}"
    organization = await emptied(people, empty)
    async with window_of(browser, people, await people.principal(empty, Role.VIEWER)) as console:
        page = console.page
        await console.go(f"/org/{organization}")
        await page.get_by_role("link", name="Open the projects").click()
        await page.get_by_text("An administrator of this organization makes projects").wait_for()
        await console.go(f"/org/{organization}/projects?make=true")
        await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_who_does_not_see_keys_is_not_told_that_there_are_none(browser: Browser, people: People) -> None:
    things = await things_of(people, "ours")
    async with window_of(browser, people, await people.principal("ours", Role.BILLING)) as console:
        await console.go(f"/org/{people.organizations['ours']}/projects/{things['project_id']}")
        await console.page.get_by_role("heading", name="Your role does not see keys").wait_for()
        await console.go(f"/org/{people.organizations['ours']}/limits?project={things['project_id']}")
        await expect(console.page.get_by_role("combobox", name="Key")).to_have_count(0)
