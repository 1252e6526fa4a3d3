"""People of every role in a whole deployment, and windows in which one of them is signed in at a console."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from uuid import UUID

import aiohttp
from playwright.async_api import Browser

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from control.fleet import edits
from control.fleet.revision import newest, write
from infra.local.folders import DataFolder
from tests.console.pages import Console, seen_by
from tests.control.api.people import People
from tests.deployment import Deployment

HEARD = """
window.refusals = [];
addEventListener("securitypolicyviolation", event => refusals.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
"""What the content security policy refuses on a page."""
ADDRESSES = {
    "organizationId": "organization_id",
    "projectId": "project_id",
    "keyId": "key_id",
    "requestId": "request_id",
    "sessionId": "session_name",
    "webhookId": "webhook_id",
    "releaseId": "release_id",
    "runId": "run_id",
    "comparisonId": "comparison_id",
    "pool": "pool_name",
    "version": "fleet_version",
}
"""Parameters of the console's addresses, and what `things_of` calls them."""


@contextlib.asynccontextmanager
async def people_of(deployed: Deployment) -> AsyncIterator[People]:
    """Of a whole deployment, whose fleet has what the things of the admin API's tests are about, until the end."""
    async with aiohttp.ClientSession() as session, deployed.database() as database:
        before = (await newest(database)).state
        async with database.transaction():
            await write(database, _with_pool_of_things, actor="tests", action="put")
        pepper = DataFolder(deployed.data).pepper_file.read_text().strip().encode()
        people = People(session, deployed.url, database, pepper)
        await people.move_in()
        yield people
        async with database.transaction():
            await write(database, lambda _: before, actor="tests", action="put")


def _with_pool_of_things(state: DesiredState) -> DesiredState:
    """As `lone_gateway` has them; nobody answers there."""
    pool = Pool("one", "sglang", (Replica("one-0", "http://127.0.0.1:9"),), 1_000, max_adapters=4)
    return edits.put_model(edits.put_pool(state, pool), Model("narrow", Tier.AUTOCOMPLETE, "one", 4_096))


@contextlib.asynccontextmanager
async def window_of(browser: Browser, people: People, principal_id: UUID) -> AsyncIterator[Console]:
    """A window in which that member is signed in, and which hears what its pages are refused."""
    (cookie,) = SimpleCookie((await people.session_of(principal_id))["cookie"]).values()
    async with seen_by(browser, people.url) as console:
        context = console.page.context
        await context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": people.url}])
        await context.add_init_script(HEARD)
        yield console


def addressed(things: dict[str, object]) -> dict[str, str]:
    """Things as the console's addresses name them."""
    return {parameter: str(things[name]) for parameter, name in ADDRESSES.items()}
