"""What an organization is given and what it decides itself, in a real browser: priorities, adapters, completions, kept
prompts; and a pool of the fleet. Each action leaves one row in the audit log.
"""

from __future__ import annotations

import asyncio
import re
import time
from uuid import UUID, uuid4

import pytest
from playwright.async_api import Browser

from contracts.dated_request_id import mint
from control.completions.rollup import roll_up
from tests.console.pages import Console, expect, seen_by
from tests.console.test_tenants import sign_in
from tests.deployment import Deployment

ORGANIZATION = re.compile(r"/org/([0-9a-f-]{36})")
PAGES = ("priorities", "adapters", "settings", "completions")
POOL = "/operations/fleet/pools/fake"
AUDITED = "SELECT action FROM gateway.audit_log WHERE organization_id = $1 AND action LIKE $2 ORDER BY id"
TRACE = """
INSERT INTO gateway.request_traces
    (request_id, organization_id, project_id, key_id, endpoint, model, tier, status, total_ms, phases_ms, client,
     language, characters)
VALUES ($1, $2, $3, $3, 'fim', 'coder', 'autocomplete', 200, 120, '{}', 'curl', $4, $5)
"""


@pytest.fixture(scope="module")
async def beta(owner: Console) -> UUID:
    """A new organization with the project `editor`."""
    await owner.go("/organizations")
    await owner.page.get_by_role("button", name="New organization").first.click()
    dialog = owner.page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("beta")
    await dialog.get_by_role("button", name="Make organization").click()
    await owner.page.wait_for_url(ORGANIZATION)
    await owner.page.get_by_role("heading", name="beta", level=1).wait_for()
    found = ORGANIZATION.search(owner.page.url)
    assert found is not None
    await owner.go(f"/org/{found.group(1)}/projects")
    await owner.page.get_by_role("button", name="New project").first.click()
    await dialog.get_by_label("Name").fill("editor")
    await dialog.get_by_role("button", name="Make project").click()
    await owner.page.get_by_role("heading", name="editor", level=1).wait_for()
    return UUID(found.group(1))


async def audited(deployed: Deployment, organization: UUID, like: str) -> list[str]:
    """Actions on an organization, in their order."""
    async with deployed.database() as connection:
        return [row["action"] for row in await connection.fetch(AUDITED, organization, like)]


async def test_the_lowest_class_holds_and_the_page_says_where_it_comes_from(
    owner: Console, deployed: Deployment, beta: UUID
) -> None:
    page = owner.page
    await owner.go(f"/org/{beta}/priorities")
    holds = page.get_by_role("region", name="Effective priorities")
    await expect(holds.get_by_role("row", name="chat")).to_contain_text("standard")
    dialog = page.get_by_role("dialog")
    await page.get_by_role("button", name="Set a priority").click()
    await dialog.get_by_label("Share").fill("0")
    await expect(dialog.get_by_role("alert")).to_contain_text("from 1 to 10,000")
    await dialog.get_by_label("Share").fill("300")
    await dialog.get_by_role("button", name="Save").click()
    await expect(holds.get_by_role("row", name="chat")).to_contain_text("300")
    await page.get_by_role("combobox", name="Project").select_option("editor")
    project = page.locator("section.card", has=page.get_by_role("heading", name="Priorities of the project"))
    await project.get_by_role("button", name="Set a priority").click()
    await dialog.get_by_label("Class").select_option("interactive")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("above the class of the organization")
    await dialog.get_by_label("Tier").select_option("autocomplete")
    await dialog.get_by_label("Class").select_option("offline")
    await dialog.get_by_role("button", name="Save").click()
    row = holds.get_by_role("row", name="autocomplete")
    await expect(row).to_contain_text("offline")
    await expect(row).to_contain_text("the project, autocomplete")
    await expect(holds.get_by_role("row", name="chat")).to_contain_text("standard")
    await owner.expect_no_faults("priorities of a project")
    await project.get_by_role("button", name="Actions for autocomplete").click()
    await page.get_by_role("menuitem", name="Remove…").click()
    await dialog.get_by_role("button", name="Remove").click()
    await expect(row).to_contain_text("standard")
    assert await audited(deployed, beta, "priorities.%") == ["priorities.put", "priorities.put", "priorities.delete"]


async def test_an_adapter_is_added_found_and_deleted(owner: Console, deployed: Deployment, beta: UUID) -> None:
    page = owner.page
    await owner.go(f"/org/{beta}/adapters")
    await page.get_by_role("button", name="New adapter").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Model").select_option("fake")
    await dialog.get_by_label("Name").fill("support-2")
    await dialog.get_by_label("Folder").fill("/srv/adapters/support-2")
    await dialog.get_by_label("For projects").select_option("editor")
    await dialog.get_by_role("button", name="Add adapter").click()
    row = page.get_by_role("region", name="Adapters").get_by_role("row", name="fake:support-2")
    await expect(row).to_contain_text("editor")
    await owner.expect_no_faults("an adapter")
    await owner.go(f"/org/{beta}/adapters?model=other")
    await page.get_by_role("heading", name="No adapter matches").wait_for()
    await owner.go(f"/org/{beta}/adapters?model=fake")
    await row.get_by_role("button", name="Delete").click()
    assert await dialog.get_by_role("button", name="Delete").is_disabled(), "its name is to be typed"
    await dialog.get_by_role("textbox").fill("support-2")
    await dialog.get_by_role("button", name="Delete").click()
    await page.get_by_text("fake:support-2 are refused").wait_for()
    await expect(row).to_have_count(0)
    assert await audited(deployed, beta, "adapter.%") == ["adapter.create", "adapter.delete"]


async def test_prompts_are_kept_by_the_organizations_own_owners_alone(owner: Console, beta: UUID) -> None:
    page = owner.page
    await owner.go(f"/org/{beta}/settings")
    await page.get_by_text("Only owners of the organization can turn this on").wait_for()
    assert await page.get_by_role("button", name="Turn on").count() == 0
    me = await page.evaluate("fetch('/admin/v1/me').then(answer => answer.json())")
    own = me["organization_id"]
    await owner.go(f"/org/{own}/completions")
    await page.get_by_role("heading", name="Texts are not kept").wait_for()
    await owner.go(f"/org/{own}/settings")
    await page.get_by_role("button", name="Turn on").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Keep prompts").click()
    await page.get_by_text("kept", exact=True).wait_for()
    await owner.expect_no_faults("settings with kept prompts")
    await owner.go(f"/org/{own}/completions")
    await page.get_by_role("heading", name="No texts yet").wait_for()
    await owner.go(f"/org/{own}/settings")
    await page.get_by_role("button", name="Turn off").click()
    await dialog.get_by_role("button", name="Turn off and delete").click()
    await page.get_by_text("not kept", exact=True).wait_for()


async def test_completions_are_counted_by_what_the_page_is_asked_for(
    owner: Console, deployed: Deployment, beta: UUID
) -> None:
    async with deployed.database() as connection:
        for language, characters in (("python", 40), ("python", 0), ("go", 12)):
            await connection.execute(TRACE, mint(time.time()), str(beta), str(uuid4()), language, characters)
    await asyncio.to_thread(roll_up, deployed.database_url, trace_retention_days=30)
    page = owner.page
    await owner.go(f"/org/{beta}/completions")
    assert (await page.locator("dt:has-text('Completions') + dd").inner_text()).split() == ["2", "1", "empty"]
    table = page.get_by_role("region", name="Completions by group")
    await expect(table.get_by_role("row", name="python").get_by_role("cell").nth(1)).to_have_text("1")
    await expect(table.get_by_role("row", name="go").get_by_role("cell").nth(1)).to_have_text("1")
    await page.get_by_role("searchbox", name="Language").fill("go")
    await page.wait_for_url("**language=go**")
    await expect(table.get_by_role("row", name="python")).to_have_count(0)
    await page.get_by_role("combobox", name="Group by").select_option("client")
    await expect(table.get_by_role("row", name="curl")).to_be_visible()
    await owner.expect_no_faults("completions")


async def test_a_pools_page_says_what_it_serves_and_how_it_is_set_up(owner: Console) -> None:
    await owner.go("/operations/fleet")
    await owner.page.get_by_role("link", name="fake", exact=True).click()
    await owner.page.wait_for_url(f"**{POOL}")
    await owner.settled()
    await expect(owner.page.get_by_role("region", name="Replicas of fake", exact=True)).to_contain_text("fake-0")
    await expect(owner.page.get_by_role("region", name="Models of fake")).to_contain_text("chat")
    await expect(owner.page.locator("dt:text-is('Driver') + dd")).to_have_text("sglang")
    await owner.go("/operations/fleet/pools/none")
    await owner.page.get_by_text("This could not be loaded").wait_for()


async def test_a_viewer_sees_these_pages_and_changes_nothing(
    browser: Browser, owner: Console, deployed: Deployment, beta: UUID
) -> None:
    await owner.go(f"/org/{beta}/members")
    await owner.page.get_by_role("button", name="Add member").first.click()
    dialog = owner.page.get_by_role("dialog")
    await dialog.get_by_label("Email").fill("viewer@beta.example")
    await dialog.get_by_label("Name").fill("Vi")
    await dialog.get_by_label("Role").select_option("viewer")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    link = owner.page.get_by_text(re.compile(r"#/welcome\?token="))
    await link.wait_for()
    async with seen_by(browser, deployed.url) as console:
        page = console.page
        await page.goto(await link.inner_text())
        await page.get_by_label("Password", exact=True).fill("another four words here")
        await page.get_by_label("Repeat the password").fill("another four words here")
        await page.get_by_role("button", name="Begin").click()
        await page.get_by_role("heading", name="beta", level=1).wait_for()
        await page.get_by_text("More", exact=True).click()
        names = await page.get_by_role("navigation", name="Main").get_by_role("link").all_inner_texts()
        assert {"Priorities", "Adapters", "Settings", "Completions", "Objectives"} <= set(names)
        assert not {"Fleet", "Organizations"} & set(names), "the deployment's affair"
        for path in PAGES:
            await console.go(f"/org/{beta}/{path}")
            offered = await page.locator("main").get_by_role("button").all_inner_texts()
            changing = {"Set a priority", "New adapter", "Rename", "Turn on", "Turn off", "Delete"}
            assert not changing & {each.strip() for each in offered}, path
            assert await page.get_by_role("button", name="Actions for").count() == 0
        await console.go(POOL)
        await page.get_by_role("heading", name="For operators", level=1).wait_for()
        assert "http://127.0.0.1" not in await page.locator("main").inner_text(), "no engine's address is told"


async def test_every_page_is_usable_in_light_and_dark_and_on_a_phone(
    browser: Browser, owner: Console, deployed: Deployment, beta: UUID
) -> None:
    paths = {name: f"/org/{beta}/{name}" for name in PAGES} | {"pool": POOL}
    for name, path in paths.items():
        await owner.go(path)
        await owner.expect_no_faults(name)
    async with seen_by(browser, deployed.url, width=390, height=844) as phone:
        await sign_in(phone)
        for path in paths.values():
            await phone.go(path)
            wide = await phone.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, f"{path} is {wide} pixels wide"
