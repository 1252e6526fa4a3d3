"""Whose key this is."""

from __future__ import annotations

from uuid import UUID

import msgspec

from gateway.admin.call import AdminCall
from gateway.tenants.roles import Permission, PrincipalKind, Role


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of the key that asks, and what it may do."""

    id: UUID
    key_id: UUID
    organization_id: UUID
    kind: PrincipalKind
    name: str
    email: str | None
    role: Role
    operator: bool
    permissions: list[Permission]


async def get_me(call: AdminCall) -> Me:
    """Who the key belongs to and what its role allows."""
    principal = call.principal
    return Me(**msgspec.structs.asdict(principal), permissions=sorted(principal.permissions))
