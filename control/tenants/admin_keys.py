"""Admin keys of members and service accounts. A key has exactly the permissions of its owner's role.

A key acts in its owner's name, which the audit log records. So no one else may hold a member's secret. The inviter
creates a member's first key. Afterwards, only the member creates and rotates its keys, and it ends the secret that the
inviter knows by rotating the first key. Every principal with the permission may revoke keys.
"""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import exists, select

from contracts.errors import InvalidField, PermissionDenied
from control.api.call import AdminCall
from control.api.key_resource import AnyKey, KeyQuery, KeyState, Rotation, SecretResource, state_of
from control.api.principal import NO_KEY
from control.api.resource import Bound
from control.api.schemas import Body, Moment, Name, Page
from gateway.auth.keys import ADMIN_PREFIX
from storage.roles import Permission, PrincipalKind, Role
from storage.rows import columns_of, equal, fetchrow, record_of
from storage.tables.tenants import admin_keys, principals


class AdminKey(AnyKey, frozen=True, kw_only=True):
    """An admin key without its secret. principal_id: the member or service account that it acts for. role: the role of
    that principal."""

    principal_id: UUID
    principal_kind: PrincipalKind
    role: Role


ADMIN_KEYS = SecretResource(
    "admin key",
    AdminKey,
    admin_keys,
    principals,
    computed={"state": state_of(admin_keys), "principal_kind": principals.c.kind},
    bound=Bound("admin_keys", "admin keys that are active", "revoke", state_of(admin_keys) == KeyState.ACTIVE.value),
    prefix=ADMIN_PREFIX,
)


class Owner(msgspec.Struct, frozen=True):
    """The owner of a new key."""

    role: Role
    kind: PrincipalKind


class AdminKeyWithSecret(msgspec.Struct, frozen=True, kw_only=True):
    """secret: shown only in this response. Only its hash is stored."""

    key: AdminKey
    secret: str


class NewAdminKey(Body, frozen=True, kw_only=True):
    """principal_id: a member or service account of the organization. expires_at: null for a key that never expires."""

    principal_id: UUID
    name: Name
    expires_at: Moment | None = None


class AdminKeyQuery(KeyQuery, frozen=True, kw_only=True):
    """Filters."""

    principal_id: UUID | None = None


async def list_admin_keys(call: AdminCall, organization_id: UUID, query: AdminKeyQuery) -> Page[AdminKey]:
    """List an organization's admin keys, newest first."""
    await call.require_organization(organization_id)
    of_organization = principals.c.organization_id == organization_id
    matching = (equal(principals.c.id, query.principal_id), equal(state_of(admin_keys), query.state))
    return await ADMIN_KEYS.page(call, query, of_organization, *matching)


async def create_admin_key(call: AdminCall, organization_id: UUID, body: NewAdminKey) -> AdminKeyWithSecret:
    """Create an admin key for oneself, for a service account, or as the first key of a new member.

    The owner's role must not allow more than the caller's own role.
    """
    await call.require_organization(organization_id)
    # The lock keeps two concurrent requests from both creating a first key.
    row = await fetchrow(
        call.connection,
        select(*columns_of(Owner, principals))
        .where(principals.c.id == body.principal_id, principals.c.organization_id == organization_id)
        .with_for_update(key_share=True),
    )
    if row is None:
        raise InvalidField(
            f"Invalid value for 'principal_id': the organization has no member or service account {body.principal_id}.",
            param="principal_id",
        )
    owner = record_of(Owner, row)
    call.require_covers(owner.role)
    if not _may_act_as(call, body.principal_id, owner.kind) and await call.value(
        select(exists().where(admin_keys.c.principal_id == body.principal_id))
    ):
        raise PermissionDenied(
            "This member has had an admin key, so only the member can create further ones; any other holder could "
            "act in the member's name. If the member lost every key, remove the member and add them again.",
            param="principal_id",
        )
    await ADMIN_KEYS.require_room(call, organization_id)
    key, secret = await ADMIN_KEYS.make(call, **ADMIN_KEYS.values_of(body))
    return AdminKeyWithSecret(key=key, secret=secret)


async def get_admin_key(call: AdminCall, admin_key_id: UUID) -> AdminKey:
    """Get an admin key."""
    return await ADMIN_KEYS.find(call, admin_key_id)


async def rotate_admin_key(call: AdminCall, admin_key_id: UUID, body: Rotation) -> AdminKeyWithSecret:
    """Give an admin key a new secret. The old secret stays valid until the end of the overlap.

    Rotating one's own key needs no permission. Rotating a service account's key needs `admin_keys.write`. Another
    member's key can only be revoked, because a rotation would show its new secret to the wrong person.
    """
    before = await ADMIN_KEYS.find(call, admin_key_id)
    if before.principal_id != call.principal.id:
        call.principal.require(Permission.ADMIN_KEYS_WRITE, operator_only=False)
        call.require_covers(before.role)
    if not _may_act_as(call, before.principal_id, before.principal_kind):
        raise PermissionDenied(
            "This admin key belongs to another member. Revoke it, and let the member rotate it or create a new one."
        )
    key, secret = await ADMIN_KEYS.rotate(call, admin_key_id, body)
    return AdminKeyWithSecret(key=key, secret=secret)


async def revoke_admin_key(call: AdminCall, admin_key_id: UUID) -> AdminKey:
    """Revoke an admin key and all its secrets, permanently and at once."""
    before = await ADMIN_KEYS.find(call, admin_key_id, for_update=True)
    call.require_covers(before.role)
    return await ADMIN_KEYS.revoke(call, before)


def _may_act_as(call: AdminCall, principal_id: UUID, kind: PrincipalKind) -> bool:
    """Whether the caller may hold a secret of this principal: no one acts in another person's name."""
    return call.principal.id == principal_id or kind is PrincipalKind.SERVICE_ACCOUNT or call.principal.key_id == NO_KEY
