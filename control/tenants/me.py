"""Reports the owner of the request's key or session."""

from __future__ import annotations

from uuid import UUID

import msgspec

from control.api.call import AdminCall
from storage.roles import Permission, PrincipalKind, Role


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The caller and its permissions. key_id: the admin key of this request. session_id: the console session of this
    request. currency: the currency of all amounts in this deployment."""

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
    """Get the owner of this request's key or session, and the permissions of its role."""
    principal = call.principal
    fields = msgspec.structs.asdict(principal)
    del fields["secret_hash"]
    return Me(**fields, permissions=sorted(principal.permissions), currency=call.currency)
