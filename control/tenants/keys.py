"""Inference keys of a project. Gateways apply every change within a second."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import UNSET, Meta, UnsetType
from sqlalchemy import and_, select

from contracts.errors import InvalidField
from control.api.call import AdminCall
from control.api.key_resource import AnyKey, KeyQuery, KeyState, Rotation, SecretResource, require_future, state_of
from control.api.resource import Bound
from control.api.schemas import Body, Moment, Name, Page
from control.tenants.limit_tables import limits
from gateway.auth.keys import PREFIX, imported_hash
from gateway.auth.scopes import Scope
from gateway.limits.levels import Level
from storage.rows import equal, fetch
from storage.tables.core import api_keys, organizations, projects

Scopes = Annotated[list[Scope], Meta(max_length=len(Scope))]


class Key(AnyKey, frozen=True, kw_only=True):
    """An inference key without its secret. scopes: null for all scopes. previous_expires_at: the time at which the
    secret from before the last rotation becomes invalid."""

    project_id: UUID
    scopes: list[Scope] | None


KEYS = SecretResource(
    "key",
    Key,
    api_keys,
    projects,
    computed={"state": state_of(api_keys)},
    bound=Bound("keys", "API keys that are active", "revoke", state_of(api_keys) == KeyState.ACTIVE.value),
    prefix=PREFIX,
)


class KeyWithSecret(msgspec.Struct, frozen=True, kw_only=True):
    """secret: shown only in this response. Only its hash is stored."""

    key: Key
    secret: str


class NewKey(Body, frozen=True, kw_only=True):
    """scopes: the permitted uses; null for all. expires_at: null for a key that never expires."""

    name: Name
    scopes: Scopes | None = None
    expires_at: Moment | None = None


class KeyChanges(Body, frozen=True, kw_only=True):
    """The fields to change. Omitted fields keep their values."""

    name: Name | UnsetType = UNSET
    scopes: Scopes | UnsetType | None = UNSET
    expires_at: Moment | UnsetType | None = UNSET


class ProjectKeyQuery(KeyQuery, frozen=True, kw_only=True):
    """Filters."""

    name: Name | None = None


async def overview(connection: asyncpg.Connection[Any], organization_id: UUID | None) -> list[asyncpg.Record]:
    """All keys, or one organization's, with their owners and their own limits, for the command line."""
    key, rule = api_keys.c, limits.c
    own_rule = and_(rule.level == Level.KEY.value, rule.subject_id == key.id, rule.tier.is_(None))
    return await fetch(
        connection,
        select(
            key.id,
            key.display,
            state_of(api_keys).label("state"),
            organizations.c.name.label("organization"),
            projects.c.name.label("project"),
            key.name,
            key.scopes,
            rule.requests_per_minute,
            rule.tokens_per_minute,
            rule.max_concurrency,
        )
        .select_from(api_keys.join(projects).join(organizations).outerjoin(limits, own_rule))
        .where(equal(organizations.c.id, organization_id))
        .order_by(key.created_at, key.id),
    )


async def list_keys(call: AdminCall, project_id: UUID, query: ProjectKeyQuery) -> Page[Key]:
    """List a project's keys, newest first."""
    await call.organization_of_project(project_id)
    of_project = api_keys.c.project_id == project_id
    matching = (equal(api_keys.c.name, query.name), equal(state_of(api_keys), query.state))
    return await KEYS.page(call, query, of_project, *matching)


async def create_key(call: AdminCall, project_id: UUID, body: NewKey) -> KeyWithSecret:
    """Create a key. Only this response contains its secret."""
    organization_id = await call.organization_of_project(project_id)
    await _require_scopes(call, organization_id, body.scopes)
    await KEYS.require_room(call, organization_id)
    key, secret = await KEYS.make(call, project_id=project_id, **KEYS.values_of(body))
    return KeyWithSecret(key=key, secret=secret)


class ImportedKey(NewKey, frozen=True, kw_only=True):
    """sha256: hash of the secret, which only its owner knows. display: its form in lists."""

    sha256: bytes
    display: Name


async def import_key(call: AdminCall, project_id: UUID, body: ImportedKey) -> Key | None:
    """Accept a key of another gateway by its hash. Return None if the key is already known.

    For commands only: a caller of the API could claim another owner's key by its hash, before that owner migrates.
    """
    stored = imported_hash(body.sha256, call.pepper)
    if await KEYS.known(call, stored):
        return None
    organization_id = await call.organization_of_project(project_id)
    await KEYS.require_room(call, organization_id)
    require_future(body.expires_at)
    values = {name: value for name, value in KEYS.values_of(body).items() if name != "sha256"}
    return await KEYS.create(call, hash=stored, project_id=project_id, **values)


async def get_key(call: AdminCall, key_id: UUID) -> Key:
    """Get a key."""
    return await KEYS.find(call, key_id)


async def update_key(call: AdminCall, key_id: UUID, body: KeyChanges) -> Key:
    """Rename a key, or change its scopes or its expiry."""
    before = await KEYS.find(call, key_id, for_update=True)
    organization_id = await call.organization_of_key(key_id)
    await _require_scopes(call, organization_id, body.scopes)
    if body.expires_at is not UNSET:
        require_future(body.expires_at)
        if before.state is KeyState.EXPIRED:
            await KEYS.require_room(call, organization_id)
    return await KEYS.update(call, before, KEYS.values_of(body))


async def rotate_key(call: AdminCall, key_id: UUID, body: Rotation) -> KeyWithSecret:
    """Give a key a new secret. The old one stays valid until the end of the overlap. Limits and usage do not change."""
    key, secret = await KEYS.rotate(call, key_id, body)
    return KeyWithSecret(key=key, secret=secret)


async def revoke_key(call: AdminCall, key_id: UUID) -> Key:
    """Revoke a key and all its secrets permanently. Every gateway refuses it within a second."""
    return await KEYS.revoke(call, await KEYS.find(call, key_id, for_update=True))


async def _require_scopes(call: AdminCall, organization_id: UUID, scopes: list[Scope] | UnsetType | None) -> None:
    """Raises InvalidField for a customer's key with a scope for unbilled requests."""
    if not scopes or Scope.EVALS not in scopes:
        return
    if not await call.value(select(organizations.c.internal).where(organizations.c.id == organization_id)):
        raise InvalidField(
            f"Invalid value for 'scopes': '{Scope.EVALS.value}' is for keys of the deployment's internal organization, "
            "whose requests are on no bill. Leave it out.",
            param="scopes",
        )
