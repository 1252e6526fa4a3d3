"""Admin keys of members and service accounts. A key can do what its owner's role can, and nothing else.

A key acts in its owner's name, and the audit log believes it. So nobody else holds a member's secret: the first key, by
which a member gets in at all, is made by who invites; from then on only the member makes and rotates keys of its own,
and ends the inviter's secret by rotating that first one. Everybody with the permission may revoke.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from contracts.errors import InvalidField, PermissionDenied
from gateway.admin.bodies import Body, Moment, Name, Page, PageQuery
from gateway.admin.call import AdminCall, not_found
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of, record_of
from gateway.admin.principal import NO_KEY
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
    """Make an admin key for oneself or a service account, or the first one of a new member.

    Only for a role that is not more than one's own.
    """
    await call.require_organization(organization_id)
    # Locked: two first keys at once would be a first and a second.
    owner = await call.connection.fetchrow(
        "SELECT role, kind FROM gateway.principals WHERE id = $1 AND organization_id = $2 FOR NO KEY UPDATE",
        body.principal_id,
        organization_id,
    )
    if owner is None:
        raise InvalidField(
            f"Invalid value for 'principal_id': the organization has no member or service account {body.principal_id}.",
            param="principal_id",
        )
    call.require_covers(Role(owner["role"]))
    if not _may_act_as(call, body.principal_id, PrincipalKind(owner["kind"])) and await call.connection.fetchval(
        "SELECT EXISTS (SELECT FROM gateway.admin_keys WHERE principal_id = $1)", body.principal_id
    ):
        raise PermissionDenied(
            "This member has had an admin key, and makes further ones alone: whoever held one could act in the "
            "member's name. For somebody who lost every key, remove the member and add them again.",
            param="principal_id",
        )
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


@endpoint("POST", "/admin-keys/{admin_key_id}/rotate", None)
async def rotate_admin_key(call: AdminCall, admin_key_id: UUID, body: Rotation) -> AdminKeyWithSecret:
    """Give an admin key a new secret; the old one opens until the end of the overlap.

    A key of one's own takes no permission. A service account's takes `admin_keys.write`; another member's is not
    rotated but revoked, for the new secret would be shown to the wrong person.
    """
    before = await find_admin_key(call, admin_key_id)
    if before.principal_id != call.principal.id:
        call.principal.require(Permission.ADMIN_KEYS_WRITE, deployment=False)
        call.require_covers(before.role)
    if not _may_act_as(call, before.principal_id, before.principal_kind):
        raise PermissionDenied("This is another member's admin key: revoke it, and let the member rotate or make one.")
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


def _may_act_as(call: AdminCall, principal_id: UUID, kind: PrincipalKind) -> bool:
    """Whether the caller may hold a secret of this principal: nobody acts in another person's name."""
    return call.principal.id == principal_id or kind is PrincipalKind.SERVICE_ACCOUNT or call.principal.key_id == NO_KEY


ENDPOINTS = (list_admin_keys, create_admin_key, get_admin_key, rotate_admin_key, revoke_admin_key)
