"""Script in every text that the admin API takes, and in those that traffic leaves: stored through the API, and text on
every page there is.

Fields are read from the operations, pages from the router: a new one of either is here without a line more.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import msgspec
from playwright.async_api import Browser, TimeoutError

from control.api.operation import Operation
from control.operations import OPERATIONS
from storage.roles import Role
from tests.console.administered import addressed, window_of
from tests.console.routes import addresses
from tests.control.api.examples import body_for, things_of
from tests.control.api.people import Client, People
from tests.control.api.test_every_endpoint import path_of

TIGHT = "\"'><img/src=x/onerror=window.struck=1>"
"""Where no blank is taken."""
MARKUP = "\"'><img src=x onerror=window.struck=1><script>window.struck=1</script>{{7*7}}"
TEXTS = (
    "javascript:window.struck=1",
    f"https://example.com/{TIGHT}",
    f"/{TIGHT}",
    f"{TIGHT}@example.com",
    TIGHT,
    MARKUP,
)
SHOWN = re.compile(r"<img[ /]src=x")
FOUND = """
() => {
  const active = 'img[src="x"], script:not([src]), iframe, [onerror], [href^="javascript:"], [action^="javascript:"]';
  return {
    struck: window.struck ?? null,
    refusals,
    active: [...document.querySelectorAll(active)].map(each => each.outerHTML.slice(0, 200)),
    text: document.body.innerText + [...document.querySelectorAll("input, option")].map(each => each.value).join(),
  };
}
"""
SHOWING = {
    "/organizations", "/org/$organizationId", "/org/$organizationId/projects",
    "/org/$organizationId/projects/$projectId", "/org/$organizationId/members",
    "/org/$organizationId/service-accounts", "/org/$organizationId/admin-keys", "/org/$organizationId/webhooks",
    "/org/$organizationId/webhooks/$webhookId", "/org/$organizationId/adapters", "/org/$organizationId/requests",
    "/org/$organizationId/audit", "/prices", "/account", "/operations/requests", "/operations/changes",
    "/operations/evals", "/operations/releases/$releaseId", "/operations/fleet",
}  # fmt: skip
"""Pages on which some of it is seen: or nothing would be tried."""


def texts_of(kind: type) -> Iterator[tuple[str, bool]]:
    """Names of a body's fields that hold any text, and whether several."""
    schema = msgspec.json.schema(kind)
    schema = schema["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for name, field in schema["properties"].items():
        for each in field.get("anyOf", [field]):
            several = each.get("type") == "array"
            inner = each.get("items", {}) if several else each
            if inner.get("type") == "string" and not {"format", "enum"} & set(inner):
                yield name, several


async def fill(people: People, client: Client, operation: Operation, organization: str) -> set[str]:
    """Ask with each text in each field; names of fields that took one. What is changed keeps the last."""
    assert operation.body is not None
    taken = set()
    things = await things_of(people, organization)
    for name, several in texts_of(operation.body):
        for text in TEXTS:
            body = {**(await body_for(people, operation, organization) or {}), name: [text] if several else text}
            values = dict(things)
            for parameter in operation.parameters:  # a name in the path is the body's
                if name in ("name", "id") and parameter in ("model_name", "pool_name", "replica_id"):
                    values[parameter] = quote(text, safe="")
            answer = await client.ask(operation.method, path_of(operation, values), body)
            assert answer.status < 500, (operation.name, name, text, answer)
            if answer.status < 300:
                taken.add(name)
    return taken


async def leave_traffic(people: People, things: dict[str, object], principal_id: UUID) -> None:
    """What no operation writes: what requests said of themselves, and who came."""
    await people.database.execute(
        "UPDATE gateway.request_traces SET model = $2, client = $2, language = $2, error_code = $2"
        " WHERE request_id = $1",
        things["request_id"],
        MARKUP,
    )
    await people.database.execute(
        "UPDATE gateway.principals SET name = $2, email = $3 WHERE id = $1",
        principal_id,
        MARKUP,
        f"{uuid4().hex}{TIGHT}@example.com",
    )


async def test_script_in_any_name_is_text_on_every_page(browser: Browser, people: People) -> None:
    principal_id = await people.principal("operator", Role.OWNER)
    client = people.with_secret(await people.key_of(principal_id))
    things = await things_of(people, "ours")
    taken: dict[str, set[str]] = {}
    for operation in OPERATIONS:
        if operation.body is not None:
            taken[operation.name] = await fill(people, client, operation, "ours")
    for name in ("create_organization", "create_project", "create_key", "create_admin_key", "create_service_account"):
        assert taken[name] == {"name"} or "name" in taken[name], name
    assert taken["create_member"] >= {"name", "email"}
    assert taken["create_webhook"] >= {"url", "description"}
    assert sum(map(len, taken.values())) > 30, taken
    await leave_traffic(people, things, principal_id)
    ids, seen, wrong = addressed(things), set(), []
    async with window_of(browser, people, principal_id) as console:
        await people.database.execute("UPDATE gateway.console_sessions SET user_agent = $1", MARKUP)
        for route, place in addresses(ids).items():
            with contextlib.suppress(TimeoutError, AssertionError):  # what cannot be loaded here waits
                await console.go(place)
            found: dict[str, Any] = await console.page.evaluate(FOUND)
            if found["struck"] is not None or found["refusals"] or found["active"]:
                wrong.append((route, found["struck"], found["refusals"], found["active"]))
            if SHOWN.search(found["text"]):
                seen.add(route)
        await console.go(f"/org/{ids['organizationId']}/audit")
        changes = console.page.get_by_role("button", name=re.compile(r"\w+\.(create|update|put)"))
        for number in range(5):
            await changes.nth(number).click()
            await console.page.get_by_role("dialog").wait_for()
            found = await console.page.evaluate(FOUND)
            assert (found["struck"], found["refusals"], found["active"]) == (None, [], [])
            await console.page.keyboard.press("Escape")
            await console.page.get_by_role("dialog").wait_for(state="hidden")
    assert not wrong
    assert seen >= SHOWING, SHOWING - seen
