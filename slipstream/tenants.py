"""Finds organizations, projects and keys by id or name for commands, and creates missing ones for some commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from sqlalchemy import Table, Text, cast, or_, select

from contracts.errors import InvalidField, NotFound
from control.api.call import AdminCall
from control.tenants.organizations import ORGANIZATIONS, NewOrganization, create_organization
from control.tenants.projects import NewProject, create_project
from slipstream.administration import converted
from slipstream.hints import command
from storage.rows import fetch
from storage.tables.core import api_keys
from storage.tables.tenants import admin_keys

OPERATOR = "operator"
# An id takes precedence over a name: owners choose names, and a name may be another object's id.
ORGANIZATIONS_NAMED = """
SELECT id, id::text = lower($1) AS by_id FROM gateway.organizations WHERE id::text = lower($1) OR name = $1
 ORDER BY created_at, id
"""
NEWEST_ORGANIZATIONS = "SELECT id::text, name FROM gateway.organizations ORDER BY created_at DESC LIMIT 2000"
NEWEST_PROJECTS = """
SELECT id::text, name FROM gateway.projects WHERE organization_id = $1 ORDER BY created_at DESC LIMIT 2000
"""
"""Enough names to suggest a similar one."""
PROJECTS = """
SELECT id, id::text = lower($2) AS by_id FROM gateway.projects
 WHERE organization_id = $1 AND (id::text = lower($2) OR name = $2)
"""
ADAPTERS = """
SELECT id, id::text = lower($2) AS by_id FROM gateway.adapters
 WHERE organization_id = $1 AND (id::text = lower($2) OR model || ':' || name = $2)
"""
MEMBER = """
SELECT id FROM gateway.principals WHERE id::text = lower($2) OR (organization_id = $1 AND lower(email) = lower($2))
"""


MEMBERS = """
SELECT id FROM gateway.principals WHERE id::text = lower($1) OR lower(email) = lower($1) ORDER BY created_at, id
"""


async def organization_named(connection: asyncpg.Connection[Any], which: str) -> UUID:
    """The organization by id or name. Raises NotFound, and InvalidField if several have the name."""
    found = await organizations_named(connection, which)
    if not found:
        hint = _meant(which, await connection.fetch(NEWEST_ORGANIZATIONS))
        raise NotFound(
            f"no organization has the id or name {which!r}; {hint}`"
            f"{command('customers organizations list')}` shows them"
        )
    return only("organization", which, found)


async def organizations_named(connection: asyncpg.Connection[Any], which: str) -> list[UUID]:
    """The organization with this id, else all with this name, oldest first."""
    return _ids_first(await connection.fetch(ORGANIZATIONS_NAMED, which))


async def project_named(connection: asyncpg.Connection[Any], organization: str, which: str) -> UUID:
    """The project by id, or by name in the organization. Raises like `organization_named`."""
    organization_id = await organization_named(connection, organization)
    found = await connection.fetch(PROJECTS, organization_id, which)
    if not found:
        hint = _meant(which, await connection.fetch(NEWEST_PROJECTS, organization_id))
        to_list = command(f"customers projects list --organization {shlex.quote(organization)}")
        raise NotFound(f"{organization} has no project with the id or name {which!r}; {hint}`{to_list}` shows them")
    return only("project", which, _ids_first(found))


async def adapter_named(connection: asyncpg.Connection[Any], organization: str, which: str) -> UUID:
    """The adapter by id, or as `model:adapter` in the organization. Raises like `organization_named`."""
    organization_id = await organization_named(connection, organization)
    found = await connection.fetch(ADAPTERS, organization_id, which)
    if not found:
        to_list = command(f"customers adapters list --organization {shlex.quote(organization)}")
        raise NotFound(f"{organization} has no adapter with the id or name {which!r}; `{to_list}` shows them")
    return only("adapter", which, _ids_first(found))


async def key_named(connection: asyncpg.Connection[Any], which: str) -> UUID:
    """The key by id, display form or name, in this order of precedence; of several with a name, the valid one. Raises
    like `organization_named`."""
    return await _key_named(connection, which, api_keys, "key")


async def admin_key_named(connection: asyncpg.Connection[Any], which: str) -> UUID:
    """The admin API's key, found like `key_named`."""
    return await _key_named(connection, which, admin_keys, "admin-key")


async def _key_named(connection: asyncpg.Connection[Any], which: str, keys: Table, what: str) -> UUID:
    key = keys.c
    named = or_(cast(key.id, Text) == which.lower(), key.display == which, key.name == which)
    # Valid keys first: a new key may have the name of a revoked one.
    order = (key.revoked_at.is_not(None), key.created_at, key.id)
    facts = (key.id, key.display, key.revoked_at.is_(None).label("live"))
    found = await fetch(connection, select(*facts).where(named).order_by(*order))
    if not found:
        raise NotFound(f"no {what} has the id, sk-slip-… or name {which!r}; `{command(f'{what}s list')}` shows them")
    found = (
        [row for row in found if str(row["id"]) == which.lower()]
        or [row for row in found if row["display"] == which]
        or found
    )
    live: list[UUID] = [row["id"] for row in found if row["live"]]
    return only(what, which, live or [found[0]["id"]])


def _ids_first(rows: Sequence[asyncpg.Record]) -> list[UUID]:
    """The ids of the rows: the one that was found by id, else all."""
    return [row["id"] for row in rows if row["by_id"]] or [row["id"] for row in rows]


async def member_named(connection: asyncpg.Connection[Any], organization_id: UUID, which: str) -> UUID:
    """The member by id, or by e-mail address in the organization. Raises NotFound."""
    found: UUID | None = await connection.fetchval(MEMBER, organization_id, which)
    if found is None:
        raise NotFound(f"no member has the id {which!r}, and no member of the organization has this e-mail address")
    return found


async def account_named(connection: asyncpg.Connection[Any], which: str) -> UUID:
    """The member by id, or by e-mail address in any organization. Raises like `organization_named`."""
    found = await connection.fetch(MEMBERS, which)
    if not found:
        to_list = command("console accounts list")
        raise NotFound(f"no account has the member's id or e-mail address {which!r}; `{to_list}` shows them")
    return only("account", which, [row["id"] for row in found])


async def ensure_project_named(call: AdminCall, organization: str, which: str) -> tuple[UUID, list[str]]:
    """The project by its and its organization's name, each created if missing; and a sentence for each created one.

    Raises NotFound for an unknown id: it does not become a name.
    """
    organization_id, organization_made = await ensure_organization(call, organization)
    project_id, project_made = await ensure_project(call, organization_id, which)
    notes = []
    if organization_made:
        notes.append(f"organization {organization!r} created, without limits")
    if project_made:
        notes.append(f"project {which!r} of {organization!r} created, for all models and tiers, without its own limits")
    return project_id, notes


async def ensure_organization(call: AdminCall, which: str) -> tuple[UUID, bool]:
    """The organization by id or name, created if missing; and whether it was created now. Of several concurrent
    callers, one creates it and the others find it. Raises NotFound like `ensure_project_named`."""
    await call.connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 1869768546))", which)
    found = await organizations_named(call.connection, which)
    if found:
        return only("organization", which, found), False
    _require_name("organization", which)
    return (await create_organization(call, converted({"name": which}, NewOrganization))).id, True


async def ensure_project(call: AdminCall, organization_id: UUID, which: str) -> tuple[UUID, bool]:
    """The project in an organization, like `ensure_organization`; and whether it was created now."""
    await call.connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 1886546286))", f"{organization_id}:{which}"
    )
    found = await call.connection.fetch(PROJECTS, organization_id, which)
    if found:
        return only("project", which, _ids_first(found)), False
    _require_name("project", which)
    return (await create_project(call, organization_id, converted({"name": which}, NewProject))).id, True


async def operating_organization(connection: asyncpg.Connection[Any]) -> UUID | None:
    """The organization whose members run the deployment; None until the first start creates it."""
    found: UUID | None = await connection.fetchval("SELECT id FROM gateway.organizations WHERE operator")
    return found


async def administered_organization(connection: asyncpg.Connection[Any], which: str | None) -> UUID:
    """The organization by id or name; the operating one for None. Raises like `organization_named`."""
    if which is not None:
        return await organization_named(connection, which)
    found = await operating_organization(connection)
    if found is None:
        to_create = command("console admin-keys create")
        raise NotFound(f"this deployment has no operator yet; `{to_create}` creates its first owner")
    return found


async def ensure_operating_organization(call: AdminCall) -> UUID:
    """The operating organization, created if missing."""
    await call.connection.execute("SELECT pg_advisory_xact_lock(hashtext('slipstream operator'))")
    found = await operating_organization(call.connection)
    if found is not None:
        return found
    taken = await call.connection.fetchval("SELECT true FROM gateway.organizations WHERE name = $1", OPERATOR)
    name = f"{OPERATOR} {uuid4().hex[:8]}" if taken else OPERATOR
    return (await ORGANIZATIONS.create(call, name=name, operator=True)).id


def only(what: str, which: str, ids: list[UUID]) -> UUID:
    """The only id. Raises InvalidField, which names all ids, if several objects have the name."""
    if len(ids) > 1:
        raise InvalidField(
            f"{len(ids)} {what}s have the name {which!r}; give the id of one: {', '.join(map(str, ids))}", param=what
        )
    return ids[0]


def _meant(which: str, known: list[asyncpg.Record]) -> str:
    """The hint `did you mean 'acme'? `, or empty. For an id in the input, the hint has an id."""
    column = "id" if _is_id(which) else "name"
    return "".join(f"did you mean {near!r}? " for near in get_close_matches(which, [row[column] for row in known], 1))


def _require_name(what: str, which: str) -> None:
    """Refuse a name that looks like an id: it is an id with a wrong digit, or from another database."""
    if _is_id(which):
        raise NotFound(f"no {what} has the id {which!r}, and an id cannot be a name")


def _is_id(which: str) -> bool:
    try:
        UUID(which)
    except ValueError:
        return False
    return True
