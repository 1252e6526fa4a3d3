"""Every page of the console as every role, of a tenant and of who runs the deployment: shown, or refused for that role;
nothing else fails, axe finds nothing serious, and what would be refused is not offered.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Response, StorageState, TimeoutError

from storage.roles import PERMISSIONS, Role
from tests.console.administered import addressed, people_of, window_of
from tests.console.offered import OFFERED, offered, wrong
from tests.console.pages import Console
from tests.console.routes import addresses, routes
from tests.control.api.examples import things_of
from tests.control.api.people import People
from tests.deployment import Deployment

DEFAULT = {("ours", Role.DEVELOPER), ("operator", Role.VIEWER)}
"""Walked by `make test-system`, without axe, which sees each page in test_gallery.py: a walk takes half a minute."""
WALKS = [
    pytest.param(whose, role, marks=[pytest.mark.nightly] * ((whose, role) not in DEFAULT), id=f"{whose}-{role.value}")
    for whose in ("ours", "operator")
    for role in Role
]
PRICE_IN_FORCE = """
INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro)
VALUES ('ended by nobody', now() - interval '1 hour', 1, 1, 1, 1)
"""
"""One that can be ended, whenever the walk comes by."""
OF_TENANTS = {"/operations/requests/$requestId"}
"""Pages below /operations of which a tenant may read a part: its own request."""


OF_THE_ROUTER = {
    "/operations/fleet", "/operations/fleet/pools/$pool", "/operations/requests/$requestId",
}  # fmt: skip
"""Pages that ask the router: they need a whole deployment."""
LIVE_FLEET = "/admin/v1/fleet/live"
"""Requested by the menu of an operator on every page; answered 503 where no router runs."""


@pytest.fixture(scope="module")
async def people(people: People) -> People:
    """With one thing of every kind."""
    await people.database.execute(PRICE_IN_FORCE)
    return people


@pytest.fixture(scope="module")
async def everybody(deployed: Deployment, signed_in: StorageState) -> AsyncIterator[People]:
    """Of a whole deployment, whose first account is made before theirs."""
    async with people_of(deployed) as there:
        yield there


async def walked(console: Console, places: dict[str, str], role: Role, *, operator: bool) -> tuple[set[str], list[str]]:
    """Routes where something was refused for the role, and what failed otherwise. places: addresses by route."""
    refused: set[str] = set()
    failed: list[str] = []
    route = ""

    def heard(response: Response) -> None:
        if response.status == 403:
            refused.add(route)
        elif response.status >= 400 and not (route not in OF_THE_ROUTER and response.url.endswith(LIVE_FLEET)):
            failed.append(f"{route}: {response.status} {response.url}")

    console.page.on("response", heard)
    for route, place in places.items():
        try:
            await console.go(place)
        except TimeoutError:
            failed.append(f"{route}: no heading, or something loads for ever")
            continue
        failed += wrong(route, await offered(console.page), role, operator=operator)
        if (("operator" if operator else "ours"), role) not in DEFAULT:
            failed += [f"{route}: {each}" for each in await console.grave()]
    console.page.remove_listener("response", heard)
    return refused, [*failed, *console.bad()]


@pytest.mark.parametrize(("whose", "role"), WALKS)
async def test_every_page_is_shown_or_refused_and_offers_what_the_role_may(
    browser: Browser, people: People, whose: str, role: Role
) -> None:
    operator = whose == "operator"
    places = addresses(addressed(await things_of(people, whose)))
    places = {route: place for route, place in places.items() if route not in OF_THE_ROUTER}
    async with window_of(browser, people, await people.principal(whose, role)) as console:
        refused, failed = await walked(console, places, role, operator=operator)
        assert not failed, "\n".join(failed)
        if operator:
            assert refused == set() or role is not Role.OWNER
        else:
            assert refused == set() or role is not Role.OWNER
            of_deployment = [place for route, place in places.items() if route.startswith("/operations")]
            assert [each for each in of_deployment if not await is_for_operators(console, each)] == []
        for more in await console.page.get_by_text("More", exact=True).all():
            await more.click()
        names = await console.page.get_by_role("navigation", name="Main").get_by_role("link").all_inner_texts()
        assert operator or not {"Organizations", "Fleet", "Releases", "Deployment"} & set(names), "of the deployment"
        assert await refused_where_led_to(console) == []


@pytest.mark.parametrize(("whose", "role"), WALKS)
async def test_what_the_router_tells_is_shown_or_refused_and_offers_what_the_role_may(
    browser: Browser, everybody: People, whose: str, role: Role
) -> None:
    operator = whose == "operator"
    places = addresses(addressed(await things_of(everybody, whose)))
    places = {route: place for route, place in places.items() if route in OF_THE_ROUTER}
    async with window_of(browser, everybody, await everybody.principal(whose, role)) as console:
        refused, failed = await walked(console, places, role, operator=operator)
        assert not failed, "\n".join(failed)
        if operator:
            assert ("/operations/fleet" in refused) == ("fleet.read" not in permissions(role)), refused
            assert refused == set() or role is not Role.OWNER
        else:
            of_deployment = [places[route] for route in OF_THE_ROUTER - OF_TENANTS]
            assert [each for each in of_deployment if not await is_for_operators(console, each)] == []


async def is_for_operators(console: Console, place: str) -> bool:
    """Whether the page says that it is not for this person."""
    await console.go(place)
    return await console.heading() == "For operators"


async def refused_where_led_to(console: Console) -> list[str]:
    """What the navigation offers, the role may see: what was refused on its pages."""
    led = (
        await console.page.get_by_role("navigation", name="Main")
        .get_by_role("link")
        .evaluate_all("links => links.map(link => link.getAttribute('href'))")
    )
    assert led
    refused: list[str] = []
    console.page.on("response", lambda answer: refused.append(answer.url) if answer.status == 403 else None)
    for place in led:
        with contextlib.suppress(TimeoutError):
            await console.go(place.removeprefix("/console"))
            continue
        refused.append(f"{place} loads for ever")
    return refused


def test_what_is_offered_is_of_pages_there_are() -> None:
    assert set(OFFERED) <= set(routes())


def permissions(role: Role) -> set[str]:
    """By name."""
    return {each.value for each in PERMISSIONS[role]}
