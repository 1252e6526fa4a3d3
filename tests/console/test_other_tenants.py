"""An owner of one tenant with another's ids in the address: no page there is shows anything of the other, and no
request a page makes is answered with it."""

from __future__ import annotations

import contextlib
import re
from uuid import uuid4

from playwright.async_api import Browser, Error, Route

from storage.roles import Role
from tests.console.administered import addressed, window_of
from tests.console.routes import addresses
from tests.control.api.examples import things_of
from tests.control.api.people import People

MARK = f"of-theirs-{uuid4().hex}"
NAMED = (
    "UPDATE gateway.organizations SET name = $1 || id WHERE id = $2",
    "UPDATE gateway.projects SET name = $1 || id WHERE organization_id = $2",
    "UPDATE gateway.api_keys SET name = $1 || api_keys.id FROM gateway.projects"
    " WHERE projects.id = project_id AND organization_id = $2",
    "UPDATE gateway.principals SET name = $1 || id WHERE organization_id = $2",
    "UPDATE gateway.webhooks SET url = 'https://' || $1, description = $1 WHERE organization_id = $2",
    "UPDATE gateway.adapters SET name = $1 || id WHERE organization_id = $2",
    "UPDATE gateway.request_traces SET model = $1, client = $1 WHERE organization_id = $2",
)
"""All that people gave a name to."""


async def test_no_page_and_no_request_shows_another_tenants(browser: Browser, people: People) -> None:
    theirs = await things_of(people, "theirs")
    for statement in NAMED:
        await people.database.execute(statement, MARK, people.organizations["theirs"])
    ids = addressed(theirs)
    leaks: list[str] = []
    answered: set[str] = set()
    place = ""

    async def pass_on(asked: Route) -> None:
        """The gateway's answer, looked at on its way; of a page that is left meanwhile there is none."""
        here = place
        with contextlib.suppress(Error):
            answer = await asked.fetch()
            ours_to_ask = not any(value in answer.url for value in ids.values() if len(value) >= 32)
            refused = answer.status in (403, 404) or (await answer.json()).get("data") == []
            if MARK in await answer.text() or not (ours_to_ask or refused):
                leaks.append(f"{here}: {answer.status} {answer.url}")
            answered.add(here)
            await asked.fulfill(response=answer)

    async with window_of(browser, people, await people.principal("ours", Role.OWNER)) as console:
        await console.page.route(re.compile("/admin/v1/(?!events)"), pass_on)
        everywhere = addresses(ids)
        for place in everywhere.values():
            await console.go(place)
            if MARK in await console.page.content():
                leaks.append(f"{place} shows it")
        await console.page.unroute_all(behavior="wait")
        assert {each for each in everywhere.values() if each.startswith("/org/")} <= answered  # operators' ask nothing
        assert not leaks
    async with window_of(browser, people, await people.principal("theirs", Role.OWNER)) as console:
        await console.go(f"/org/{ids['organizationId']}/projects")  # and its own owner sees it
        assert MARK in await console.page.content()
