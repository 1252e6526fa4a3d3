"""Admin keys of members and service accounts. A key can do what its owner's role can, and nothing else."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from contracts.errors import InvalidField
from gateway.admin.bodies import Body, Moment, Name, Page, PageQuery
from gateway.admin.call import AdminCall, not_found
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of, record_of
from gateway.admin.secrets import STATE, KeyState, Rotation, require_future, rotate
from gateway.auth.keys import ADMIN_PREFIX, mint
from gateway.tenants.roles import Permission, PrincipalKind, Role

COLUMNS = f"""admin_keys.id, principal_id, principals.kind AS principal_kind, role, organization_id, admin_keys.name,
       display, {STATE} AS state, admin_keys.created_at, expires_at, revoked_at, last_used_at, previous_expires_at"""
SELECT = f"SELECT {COLUMNS} FROM gateway.admin_keys JOIN gateway.principals ON principals.id = principal_id"


class AdminKey(msgspec.Struct, frozen=True, kw_only=True):
    """An admin key without its secret. principal_id: the member or service account it belongs to; role: theirs."""

    id: UUID
    principal_id: UUID
    principal_kind: PrincipalKind
    role: Role
    organization_id: UUID
    name: str
    display: str
    state: KeyState
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    previous_expires_at: datetime | None


class AdminKeyWithSecret(msgspec.Struct, frozen=True, kw_only=True):
    """secret: shown now and never again; only a hash of it is stored."""

    key: AdminKey
    secret: str


class NewAdminKey(Body, frozen=True, kw_only=True):
    """principal_id: a member or service account of the organization. expires_at: null for never."""

    principal_id: UUID
    name: Name
    expires_at: Moment | None = None


class AdminKeyQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    principal_id: UUID | None = None
    state: KeyState | None = None


async def find_admin_key(call: AdminCall, admin_key_id: UUID, *, for_update: bool = False) -> AdminKey:
    """Raises NotFound, for another organization's principal too."""
    row = await call.connection.fetchrow(
        f"{SELECT} WHERE admin_keys.id = $1 AND ($2::uuid IS NULL OR organization_id = $2)"
        f" {'FOR UPDATE OF admin_keys' if for_update else ''}",
        admin_key_id,
        call.scope,
    )
    if row is None:
        raise not_found("admin key", admin_key_id)
    return record_of(AdminKey, row)


@endpoint("GET", "/organizations/{organization_id}/admin-keys", Permission.ADMIN_KEYS_READ)
async def list_admin_keys(call: AdminCall, organization_id: UUID, query: AdminKeyQuery) -> Page[AdminKey]:
    """List an organization's admin keys, newest first."""
    await call.require_organization(organization_id)
    where = call.where()
    where.add("organization_id = {}", organization_id)
    where.add_if("principal_id = {}", query.principal_id)
    where.add_if(f"{STATE} = {{}}", query.state and query.state.value)
    return await page_of(call.connection, AdminKey, SELECT, where, query, table="admin_keys")


@endpoint("POST", "/organizations/{organization_id}/admin-keys", Permission.ADMIN_KEYS_WRITE)
async def create_admin_key(call: AdminCall, organization_id: UUID, body: NewAdminKey) -> AdminKeyWithSecret:
    """Make an admin key for a member or service account whose role is not more than one's own."""
    await call.require_organization(organization_id)
    role = await call.connection.fetchval(
        "SELECT role FROM gateway.principals WHERE id = $1 AND organization_id = $2", body.principal_id, organization_id
    )
    if role is None:
        raise InvalidField(
            f"Invalid value for 'principal_id': the organization has no member or service account {body.principal_id}.",
            param="principal_id",
        )
    call.require_covers(Role(role))
    require_future(body.expires_at)
    minted = mint(call.pepper, ADMIN_PREFIX)
    key_id = await call.connection.fetchval(
        "INSERT INTO gateway.admin_keys (principal_id, name, hash, display, expires_at)"
        " VALUES ($1, $2, $3, $4, $5) RETURNING id",
        body.principal_id,
        body.name,
        minted.hash,
        minted.display,
        body.expires_at,
    )
    key = await find_admin_key(call, key_id)
    call.audit("admin_key.create", key.id, organization_id=organization_id, after=key)
    return AdminKeyWithSecret(key=key, secret=minted.secret)


@endpoint("GET", "/admin-keys/{admin_key_id}", Permission.ADMIN_KEYS_READ)
async def get_admin_key(call: AdminCall, admin_key_id: UUID) -> AdminKey:
    """One admin key."""
    return await find_admin_key(call, admin_key_id)


@endpoint("POST", "/admin-keys/{admin_key_id}/rotate", Permission.ADMIN_KEYS_WRITE)
async def rotate_admin_key(call: AdminCall, admin_key_id: UUID, body: Rotation) -> AdminKeyWithSecret:
    """Give an admin key a new secret; the old one opens until the end of the overlap."""
    before = await find_admin_key(call, admin_key_id)
    call.require_covers(before.role)
    minted = mint(call.pepper, ADMIN_PREFIX)
    await rotate(call, "admin_keys", admin_key_id, minted, body)
    after = await find_admin_key(call, admin_key_id)
    call.audit("admin_key.rotate", admin_key_id, organization_id=after.organization_id, before=before, after=after)
    return AdminKeyWithSecret(key=after, secret=minted.secret)


@endpoint("POST", "/admin-keys/{admin_key_id}/revoke", Permission.ADMIN_KEYS_WRITE, status=200)
async def revoke_admin_key(call: AdminCall, admin_key_id: UUID) -> AdminKey:
    """End an admin key and all its secrets, for good and at once."""
    before = await find_admin_key(call, admin_key_id, for_update=True)
    call.require_covers(before.role)
    await call.connection.execute(
        "UPDATE gateway.admin_keys SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL", admin_key_id
    )
    after = await find_admin_key(call, admin_key_id)
    call.audit("admin_key.revoke", admin_key_id, organization_id=after.organization_id, before=before, after=after)
    return after


ENDPOINTS = (list_admin_keys, create_admin_key, get_admin_key, rotate_admin_key, revoke_admin_key)
