"""Inference keys of a project. Gateways hear of every change within a second."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.admin.bodies import Body, Moment, Name, Page, PageQuery
from gateway.admin.call import AdminCall, not_found
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of, record_of
from gateway.admin.secrets import STATE, KeyState, Rotation, require_future, rotate
from gateway.auth.keys import mint
from gateway.auth.scopes import Scope
from gateway.tenants.roles import Permission

COLUMNS = f"""api_keys.id, project_id, organization_id, api_keys.name, display, {STATE} AS state, scopes,
       api_keys.created_at, expires_at, revoked_at, last_used_at, previous_expires_at"""
SELECT = f"SELECT {COLUMNS} FROM gateway.api_keys JOIN gateway.projects ON projects.id = project_id"
OVERVIEW = f"""
SELECT api_keys.id, display, {STATE} AS state, organizations.name AS organization, projects.name AS project,
       api_keys.name, requests_per_minute, tokens_per_minute, max_concurrency
  FROM gateway.api_keys
  JOIN gateway.projects ON projects.id = project_id
  JOIN gateway.organizations ON organizations.id = organization_id
  LEFT JOIN gateway.limits ON level = 'key' AND subject_id = api_keys.id AND tier IS NULL
 WHERE $1::uuid IS NULL OR organization_id = $1
 ORDER BY api_keys.created_at, api_keys.id
"""
"""All keys, or one organization's, with whose they are and their own limits: for people at the command line."""

Scopes = Annotated[list[Scope], Meta(max_length=len(Scope))]


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An inference key without its secret. scopes: null for all. previous_expires_at: until when the secret before the
    last rotation opens."""

    id: UUID
    project_id: UUID
    organization_id: UUID
    name: str
    display: str
    state: KeyState
    scopes: list[Scope] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    previous_expires_at: datetime | None


class KeyWithSecret(msgspec.Struct, frozen=True, kw_only=True):
    """secret: shown now and never again; only a hash of it is stored."""

    key: Key
    secret: str


class NewKey(Body, frozen=True, kw_only=True):
    """scopes: what it may be used for, null for everything. expires_at: null for never."""

    name: Name
    scopes: Scopes | None = None
    expires_at: Moment | None = None


class KeyChanges(Body, frozen=True, kw_only=True):
    """What to change; what is left out stays."""

    name: Name | UnsetType = UNSET
    scopes: Scopes | UnsetType | None = UNSET
    expires_at: Moment | UnsetType | None = UNSET


class KeyQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    name: Name | None = None
    state: KeyState | None = None


async def find_key(call: AdminCall, key_id: UUID, *, for_update: bool = False) -> Key:
    """Raises NotFound, for another organization's principal too."""
    row = await call.connection.fetchrow(
        f"{SELECT} WHERE api_keys.id = $1 AND ($2::uuid IS NULL OR organization_id = $2)"
        f" {'FOR UPDATE OF api_keys' if for_update else ''}",
        key_id,
        call.scope,
    )
    if row is None:
        raise not_found("key", key_id)
    return record_of(Key, row)


@endpoint("GET", "/projects/{project_id}/keys", Permission.KEYS_READ)
async def list_keys(call: AdminCall, project_id: UUID, query: KeyQuery) -> Page[Key]:
    """List a project's keys, newest first."""
    await call.organization_of_project(project_id)
    where = call.where()
    where.add("project_id = {}", project_id)
    where.add_if("api_keys.name = {}", query.name)
    where.add_if(f"{STATE} = {{}}", query.state and query.state.value)
    return await page_of(call.connection, Key, SELECT, where, query, table="api_keys")


@endpoint("POST", "/projects/{project_id}/keys", Permission.KEYS_WRITE)
async def create_key(call: AdminCall, project_id: UUID, body: NewKey) -> KeyWithSecret:
    """Make a key. The answer holds its secret, this once."""
    await call.organization_of_project(project_id)
    require_future(body.expires_at)
    minted = mint(call.pepper)
    key_id = await call.connection.fetchval(
        "INSERT INTO gateway.api_keys (project_id, name, hash, display, scopes, expires_at)"
        " VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
        project_id,
        body.name,
        minted.hash,
        minted.display,
        _unique(body.scopes),
        body.expires_at,
    )
    key = await find_key(call, key_id)
    call.audit("key.create", key.id, organization_id=key.organization_id, after=key)
    return KeyWithSecret(key=key, secret=minted.secret)


@endpoint("GET", "/keys/{key_id}", Permission.KEYS_READ)
async def get_key(call: AdminCall, key_id: UUID) -> Key:
    """One key."""
    return await find_key(call, key_id)


@endpoint("PATCH", "/keys/{key_id}", Permission.KEYS_WRITE)
async def update_key(call: AdminCall, key_id: UUID, body: KeyChanges) -> Key:
    """Rename a key, change its scopes or its end."""
    before = await find_key(call, key_id, for_update=True)
    if body.expires_at is not UNSET:
        require_future(body.expires_at)
    await call.connection.execute(
        "UPDATE gateway.api_keys SET name = $2, scopes = $3, expires_at = $4 WHERE id = $1",
        key_id,
        before.name if body.name is UNSET else body.name,
        _unique(before.scopes if body.scopes is UNSET else body.scopes),
        before.expires_at if body.expires_at is UNSET else body.expires_at,
    )
    after = await find_key(call, key_id)
    call.audit("key.update", key_id, organization_id=after.organization_id, before=before, after=after)
    return after


@endpoint("POST", "/keys/{key_id}/rotate", Permission.KEYS_WRITE)
async def rotate_key(call: AdminCall, key_id: UUID, body: Rotation) -> KeyWithSecret:
    """Give a key a new secret; the old one opens until the end of the overlap. Limits and usage stay the key's."""
    before = await find_key(call, key_id)
    minted = mint(call.pepper)
    await rotate(call, "api_keys", key_id, minted, body)
    after = await find_key(call, key_id)
    call.audit("key.rotate", key_id, organization_id=after.organization_id, before=before, after=after)
    return KeyWithSecret(key=after, secret=minted.secret)


@endpoint("POST", "/keys/{key_id}/revoke", Permission.KEYS_WRITE, status=200)
async def revoke_key(call: AdminCall, key_id: UUID) -> Key:
    """End a key and all its secrets, for good; every gateway refuses it within a second."""
    before = await find_key(call, key_id, for_update=True)
    await call.connection.execute(
        "UPDATE gateway.api_keys SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL", key_id
    )
    after = await find_key(call, key_id)
    call.audit("key.revoke", key_id, organization_id=after.organization_id, before=before, after=after)
    return after


def _unique(scopes: list[Scope] | None) -> list[str] | None:
    return None if scopes is None else sorted({scope.value for scope in scopes})


ENDPOINTS = (list_keys, create_key, get_key, update_key, rotate_key, revoke_key)
