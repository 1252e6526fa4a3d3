"""What the console's pages offer that changes something, and what a role needs for it to be there: written by hand.

A button that is not here, nor in HARMLESS, is one that nobody has said the role for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from playwright.async_api import Page

from storage.roles import PERMISSIONS, Role

MENU = re.compile("^(Actions for |More actions$)")
HARMLESS = re.compile(
    r"Try again|CSV|Copy.*|Print or save as PDF|"
    r"curl|Python|Load more|Find out|Send|Use it|Show change .*|Actions for .*|More.*|Attempts…"
)
"""They ask, draw anew, or open what is listed."""


class Needs(NamedTuple):
    """permission: as the API names it. of_deployment: who runs the deployment alone. sometimes: only in some states of
    the thing."""

    permission: str
    of_deployment: bool = False
    sometimes: bool = False


PROJECTS, KEYS, MEMBERS = Needs("projects.write"), Needs("keys.write"), Needs("members.write")
ADMIN_KEYS, WEBHOOKS, LIMITS = Needs("admin_keys.write"), Needs("webhooks.write"), Needs("limits.write")
FLEET, EVALS = Needs("fleet.write", of_deployment=True), Needs("evals.write", of_deployment=True)
RELEASES, VOTES = Needs("releases.write", of_deployment=True), Needs("reviews.vote", of_deployment=True)
ANYBODY = Needs("organization.read")
"""Every role has it."""
CHANGES, PRICES = Needs("changes.write", of_deployment=True), Needs("prices.write", of_deployment=True)
ORGANIZATIONS = Needs("organization.write", of_deployment=True)
OF_KEYS = {"Rotate…": KEYS, "Revoke…": KEYS}
OFFERED: dict[str, dict[str, Needs]] = {
    "/organizations": {"New organization": ORGANIZATIONS, "Disable…": ORGANIZATIONS, "Enable": ORGANIZATIONS},
    "/org/$organizationId/projects": {"New project": PROJECTS},
    "/org/$organizationId/projects/$projectId": {"Change": PROJECTS, "Disable": PROJECTS, "New key": KEYS, **OF_KEYS},
    "/org/$organizationId/projects/$projectId/keys/$keyId": {"Set a limit": LIMITS, **OF_KEYS},
    "/org/$organizationId/members": {
        "Add member": MEMBERS, "Change…": MEMBERS, "Disable": MEMBERS, "Link to sign in…": MEMBERS, "Remove…": MEMBERS,
    },
    "/org/$organizationId/service-accounts": {
        "New service account": MEMBERS, "Change…": MEMBERS, "Disable": MEMBERS, "Remove…": MEMBERS,
    },
    "/org/$organizationId/admin-keys": {"New admin key": ADMIN_KEYS, "Rotate…": ADMIN_KEYS, "Revoke…": ADMIN_KEYS},
    "/org/$organizationId/limits": {"Set a limit": LIMITS._replace(of_deployment=True)},
    "/org/$organizationId/priorities": {"Set a priority": LIMITS._replace(of_deployment=True)},
    "/org/$organizationId/adapters": {"New adapter": FLEET, "Delete": FLEET},
    "/org/$organizationId/settings": {
        "Rename": Needs("organization.write"), "Turn on": Needs("organization.write"),
    },
    "/org/$organizationId/webhooks": {"New webhook": WEBHOOKS},
    "/org/$organizationId/webhooks/$webhookId": {
        "Send a test": WEBHOOKS, "Change": WEBHOOKS, "Send again": WEBHOOKS, "Enable": WEBHOOKS,
        "New signing secret…": WEBHOOKS, "Remove…": WEBHOOKS,
    },
    "/prices": {"New price": PRICES, "End…": PRICES, "Remove…": PRICES},
    "/playground/chat": {"Make a key": KEYS, "Make a project and a key": PROJECTS._replace(sometimes=True)},
    "/playground/autocomplete": {"Make a key": KEYS, "Make a project and a key": PROJECTS._replace(sometimes=True)},
    "/operations/releases": {"Start a release": RELEASES},
    "/operations/releases/$releaseId": {
        "Promote to 5 %…": RELEASES, "Hold…": RELEASES, "Roll back…": RELEASES,
    },
    "/operations/evals": {"Start a run": EVALS, "Compare two pools": EVALS},
    "/operations/evals/runs/$runId": {"Cancel…": EVALS._replace(sometimes=True)},
    "/operations/evals/comparisons/$comparisonId": {"Cancel…": EVALS._replace(sometimes=True)},
    "/operations/reviews": {
        "Left is better 1": VOTES, "Right is better 2": VOTES, "Both are good 3": VOTES, "Both are bad 4": VOTES,
        "Skip 5": VOTES,
    },
    "/operations/changes": {"Record a change": CHANGES, "Delete…": CHANGES, "Measure and store": CHANGES},
    "/account": {"Leave the organization": ANYBODY},
    "/operations/fleet": {"Drain": FLEET, "Add a model": FLEET, "Add a pool": FLEET},
    "/operations/fleet/pools/$pool": {
        "Drain": FLEET, "Add a replica": FLEET, "Change the URL…": FLEET, "Remove…": FLEET,
    },
    "/operations/fleet/versions/$version": {"Go back to this version": FLEET},
}  # fmt: skip
"""By route, by the button's name. Of things as the admin API's tests have them."""


async def offered(page: Page) -> set[str]:
    """Names of all buttons of the page itself, but of tables' headings, and of what its menus hold."""
    names = await page.locator("main button:not(th button)").evaluate_all(
        "all => all.map(each => each.getAttribute('aria-label') ?? each.innerText)"
    )
    found = {" ".join(name.split()) for name in names}
    for button in await page.locator("main").get_by_role("button", name=MENU).all():
        await button.click()
        found |= set(await page.get_by_role("menuitem").all_inner_texts())
        await page.keyboard.press("Escape")
        await page.get_by_role("menuitem").first.wait_for(state="detached")
    return found


def wrong(route: str, found: Iterable[str], role: Role, *, operator: bool) -> list[str]:
    """What is offered to the role and should not be, or the other way round, on a page of its own organization's."""
    known = OFFERED.get(route, {})
    permissions = {each.value for each in PERMISSIONS[role]}
    may = {name: n.permission in permissions and (operator or not n.of_deployment) for name, n in known.items()}
    changing = {name for name in found if not HARMLESS.fullmatch(name)}
    told = [f"{route}: {name!r} is in no list" for name in changing - set(known)]
    told += [f"{route}: {name!r} is offered" for name in changing & set(known) if not may[name]]
    missing = {name for name in known if may[name] and not known[name].sometimes} - changing
    return [*told, *(f"{route}: {name!r} is missing" for name in missing)]
