"""What somebody sees who has just come: the first steps of a new deployment, and forms that ask before they act."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from playwright.async_api import Browser

from storage.roles import Role
from tests.console.administered import window_of
from tests.console.pages import Console, expect, made
from tests.control.api.people import People

KEYS = """
SELECT projects.name, keys.name, keys.expires_at < now() + interval '61 minutes'
  FROM gateway.api_keys AS keys JOIN gateway.projects ON projects.id = keys.project_id
 WHERE projects.organization_id = $1
"""
STEPS = ("Make a key", "Ask a model", "Add an engine", "Invite people")


@pytest.fixture
async def owner(browser: Browser, people: People) -> AsyncIterator[Console]:
    async with window_of(browser, people, await people.principal("operator", Role.OWNER)) as console:
        yield console


async def own_organization(people: People) -> UUID:
    """The operating one's id."""
    found: UUID = await people.database.fetchval("SELECT id FROM gateway.organizations WHERE operator")
    return found


async def test_a_new_deployment_says_how_to_begin(owner: Console) -> None:
    page = owner.page
    await owner.go("/operations")
    steps = page.get_by_role("main").get_by_role("listitem")
    await page.get_by_role("heading", name="Get started").wait_for()
    assert [await each.get_by_role("heading").inner_text() for each in await steps.all()] == list(STEPS)
    await owner.expect_no_faults("a new deployment")
    await steps.nth(0).get_by_role("link", name="Open the projects").click()
    await page.get_by_role("heading", name="Projects", level=1).wait_for()
    await owner.go("/operations?tier=autocomplete")
    await page.get_by_text("No requests in this period").wait_for()
    assert await page.get_by_role("heading", name="Get started").count() == 0, "a filter leaves nothing: no first steps"


async def test_the_playground_makes_an_organizations_first_project_with_its_key(owner: Console, people: People) -> None:
    page, organization = owner.page, await own_organization(people)
    await people.database.execute("DELETE FROM gateway.projects WHERE organization_id = $1", organization)
    await owner.go("/playground/chat")
    await page.get_by_role("button", name="Make a project and a key").click()
    await expect(page.get_by_role("button", name="Use another key")).to_be_visible()
    keys = await people.database.fetch(KEYS, organization)
    assert [tuple(row) for row in keys] == [("playground", "playground", True)]
    await page.get_by_role("button", name="Use another key").click()
    await expect(page.get_by_role("button", name="Make a key")).to_be_enabled()


async def test_the_menu_has_two_modes_and_folds_what_is_rare(owner: Console, people: People) -> None:
    page = owner.page
    await owner.go("/operations/fleet/versions")
    menu = page.get_by_role("navigation", name="Main")
    assert await menu.get_by_role("link", name="Projects").count() == 0
    await expect(menu.get_by_role("link", name="Releases")).to_be_visible()
    assert not await menu.get_by_role("link", name="Reconciliation").is_visible()
    await menu.get_by_role("link", name="Organization", exact=True).click()
    await expect(menu.get_by_role("link", name="Projects")).to_be_visible()
    assert await menu.get_by_role("link", name="Releases").count() == 0
    await owner.go(f"/org/{await own_organization(people)}/audit")
    await expect(menu.get_by_role("link", name="Audit log")).to_be_visible()  # unfolded: it is looked at
    await menu.get_by_role("link", name="Chat").click()
    await page.get_by_role("heading", name="Chat", level=1).wait_for()
    await expect(menu.get_by_role("link", name="Projects")).to_be_visible()


async def test_a_member_is_invited_until_somebody_signs_in_and_a_link_is_made_on_demand(
    owner: Console, people: People
) -> None:
    page, organization = owner.page, await own_organization(people)
    body = {"name": "Nell", "email": f"{uuid4().hex[:8]}@acme.example", "role": "viewer"}
    await owner.go(f"/org/{organization}/members")
    member = await made(owner, f"/organizations/{organization}/members", body)
    await owner.go(f"/org/{organization}/members")
    row = page.get_by_role("row", name=re.compile(body["email"]))
    await expect(row.get_by_text("invited")).to_be_visible()
    links = "SELECT count(*) FROM gateway.console_links WHERE principal_id = $1"
    await row.get_by_role("button", name="Actions for Nell").click()
    await page.get_by_role("menuitem", name="Link to sign in…").click()
    dialog = page.get_by_role("dialog", name="Make a link for Nell?")
    await dialog.wait_for()
    assert await people.database.fetchval(links, UUID(member["id"])) == 0, "nothing is made before somebody says so"
    await dialog.get_by_role("button", name="Make the link").click()
    await page.get_by_text(re.compile(r"#/welcome\?token=")).wait_for()
    assert await people.database.fetchval(links, UUID(member["id"])) == 1
    await owner.expect_no_faults("a member's link")


async def test_a_projects_models_are_ticked(owner: Console, people: People) -> None:
    page, organization = owner.page, await own_organization(people)
    await owner.go(f"/org/{organization}/projects")
    await page.get_by_role("button", name="New project").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill(f"narrow {uuid4().hex[:6]}")
    await dialog.get_by_label("all models, including later ones").uncheck()
    models = dialog.get_by_role("group", name="Models").get_by_role("checkbox")
    for each in (await models.all())[1:]:
        await each.uncheck()
    await expect(dialog.get_by_role("button", name="Make project")).to_be_disabled()
    await models.nth(1).check()
    await dialog.get_by_role("button", name="Make project").click()
    await dialog.wait_for(state="hidden")
    project = page.url.rsplit("/", 1)[1]
    chosen = await people.database.fetchval("SELECT models FROM gateway.projects WHERE id = $1", UUID(project))
    assert len(chosen) == 1


async def test_a_tenant_is_told_that_a_page_is_of_operators(browser: Browser, people: People) -> None:
    async with window_of(browser, people, await people.principal("ours", Role.OWNER)) as console:
        await console.go("/operations/releases")
        await console.page.get_by_role("heading", name="For operators", level=1).wait_for()
        assert await console.page.get_by_role("link", name="Deployment").count() == 0
        assert console.bad() == []


async def test_the_deployments_own_organization_is_marked_and_each_has_its_months_cost(
    owner: Console, people: People
) -> None:
    own = "INSERT INTO gateway.organizations (name, internal) VALUES ('askers of evals', true)"
    await people.database.execute(own)
    await owner.go("/organizations")
    table = owner.page.get_by_role("table", name="Organizations")
    await expect(table.get_by_role("row", name=re.compile("^askers of evals internal, not billed"))).to_be_visible()
    await expect(table.get_by_role("columnheader", name="Cost this month")).to_be_visible()
    assert await table.get_by_text("internal, not billed").count() == 1
