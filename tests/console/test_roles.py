"""Every page of the console as every role of a tenant: shown, or refused for that role; nothing else fails."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, Response, TimeoutError

from gateway.tenants.roles import PERMISSIONS, Role
from tests.console.pages import ANY_HOME, Console, seen_by
from tests.console.routes import address, routes
from tests.deployment import Deployment

MAKE = """
async ([method, path, body]) => {
  const session = await (await fetch("/console/api/session")).json();
  const headers = {"Content-Type": "application/json", "X-CSRF-Token": session.signed_in.csrf_token};
  const answer = await fetch(path, {method, headers, body: JSON.stringify(body)});
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return await answer.json();
}
"""
"""Something made by a page's own session."""


async def made(owner: Console, path: str, body: object = None) -> Any:
    """What the owner's session has made."""
    return await owner.page.evaluate(MAKE, ["POST", f"/admin/v1{path}", body or {}])


@pytest.fixture(scope="module")
async def ids(owner: Console) -> dict[str, str]:
    """Of a tenant with one thing of every kind."""
    await owner.go("/organizations")
    organization = (await made(owner, "/organizations", {"name": "every role"}))["id"]
    project = (await made(owner, f"/organizations/{organization}/projects", {"name": "backend"}))["id"]
    key = (await made(owner, f"/projects/{project}/keys", {"name": "staging"}))["key"]["id"]
    hook = {"url": "https://example.com/hook"}
    webhook = (await made(owner, f"/organizations/{organization}/webhooks", hook))["webhook"]["id"]
    return {"organizationId": organization, "projectId": project, "keyId": key, "webhookId": webhook}


NIGHTLY = {Role.ADMIN, Role.DEVELOPER}
"""They lie between the others."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(role.value, marks=[pytest.mark.nightly] * (role in NIGHTLY)) for role in Role],
)
async def member(
    request: pytest.FixtureRequest, browser: Browser, owner: Console, deployed: Deployment, ids: dict[str, str]
) -> AsyncIterator[tuple[str, Console]]:
    """Somebody of that role, signed in."""
    async with signed_in(browser, owner, deployed, ids["organizationId"], request.param) as console:
        yield request.param, console


@contextlib.asynccontextmanager
async def signed_in(
    browser: Browser, owner: Console, deployed: Deployment, organization_id: str, role: str
) -> AsyncIterator[Console]:
    """The window of a new member."""
    body = {"email": f"{role}@{organization_id}.example", "name": role, "role": role}
    person = await made(owner, f"/organizations/{organization_id}/members", body)
    link = await made(owner, f"/members/{person.get('member', person)['id']}/console-link")
    async with seen_by(browser, deployed.url) as console:
        await console.page.goto(deployed.url + link["url"])
        await console.page.get_by_label("Password", exact=True).fill("another four words here")
        await console.page.get_by_label("The password again").fill("another four words here")
        await console.page.get_by_role("button", name="Begin").click()
        await console.page.wait_for_url(ANY_HOME)
        yield console


async def walked(console: Console, ids: dict[str, str], *, deployment: bool = False) -> tuple[set[str], list[str]]:
    """Addresses where something was refused for the role, and what failed otherwise. deployment: its pages too."""
    refused: set[str] = set()
    failed: list[str] = []
    route = ""

    def heard(response: Response) -> None:
        if response.status == 403:
            refused.add(route)
        elif response.status >= 400:
            failed.append(f"{route}: {response.status} {response.url}")

    console.page.on("response", heard)
    for route in routes():
        place = address(route, ids)
        if place is None or (route.startswith("/operations") and not deployment):
            continue
        with contextlib.suppress(TimeoutError):
            await console.go(place)
            continue
        failed.append(f"{route}: no heading, or something loads for ever")
    console.page.remove_listener("response", heard)
    bad = [each for each in console.complaints if not each.startswith(console.expected)]
    return refused, [*failed, *bad]


async def test_every_page_is_shown_or_refused_by_name(member: tuple[str, Console], ids: dict[str, str]) -> None:
    role, console = member
    refused, failed = await walked(console, ids)
    assert failed == []
    if role == Role.OWNER:
        assert refused == set()
    names = await console.page.get_by_role("navigation", name="Main").get_by_role("link").all_inner_texts()
    assert not {"Organizations", "Fleet", "Releases", "Deployment"} & set(names), "of the deployment"


async def test_no_page_led_to_is_refused(member: tuple[str, Console], ids: dict[str, str]) -> None:
    """What the navigation offers, the role may see."""
    _, console = member
    led = (
        await console.page.get_by_role("navigation", name="Main")
        .get_by_role("link")
        .evaluate_all("links => links.map(link => link.getAttribute('href'))")
    )
    assert led
    refused: list[str] = []
    console.page.on("response", lambda answer: refused.append(answer.url) if answer.status == 403 else None)
    for place in led:
        await console.go(place.removeprefix("/console"))
    assert refused == []


@pytest.mark.nightly
@pytest.mark.parametrize("role", [each for each in Role if each is not Role.OWNER])
async def test_an_operator_of_every_role_walks_every_page(
    role: Role, browser: Browser, owner: Console, deployed: Deployment, ids: dict[str, str]
) -> None:
    """Whose own organization the deployment is; its owner walks them in the other tests."""
    me = await owner.page.evaluate("fetch('/admin/v1/me').then(answer => answer.json())")
    fleet = {"pool": "fake", "version": "1"}
    async with signed_in(browser, owner, deployed, me["organization_id"], role.value) as console:
        refused, failed = await walked(console, ids | fleet, deployment=True)
        assert failed == []
        assert ("/operations/fleet" in refused) == ("fleet.read" not in permissions(role)), refused
        await test_no_page_led_to_is_refused((role.value, console), ids)


def permissions(role: Role) -> set[str]:
    """By name."""
    return {each.value for each in PERMISSIONS[role]}
