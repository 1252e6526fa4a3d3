"""Reports the owner of the request's key or session."""

from __future__ import annotations

from uuid import UUID

import msgspec

from control.api.call import AdminCall
from storage.roles import Permission, PrincipalKind, Role


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what they may do. key_id: of the admin key that asks; session_id: of the console's session.
    currency: what all amounts of the deployment are in."""

    id: UUID
    key_id: UUID | None
    session_id: UUID | None
    organization_id: UUID
    kind: PrincipalKind
    name: str
    email: str | None
    role: Role
    operator: bool
    permissions: list[Permission]
    currency: str


async def get_me(call: AdminCall) -> Me:
    """Who the key or session belongs to and what its role allows."""
    principal = call.principal
    fields = msgspec.structs.asdict(principal)
    del fields["secret_hash"]
    return Me(**fields, permissions=sorted(principal.permissions), currency=call.currency)
