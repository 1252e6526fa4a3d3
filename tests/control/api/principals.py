"""Owners who have not signed in anywhere, for tests of what is counted by them."""

from __future__ import annotations

from uuid import UUID

from control.api.principal import Principal
from storage.roles import PrincipalKind, Role


def principal(organization: int = 1, *, number: int = 1, operator: bool = False) -> Principal:
    """organization, number: equal ones are the same."""
    return Principal(
        id=UUID(int=number),
        key_id=None,
        organization_id=UUID(int=organization),
        kind=PrincipalKind.MEMBER,
        name="n",
        email=None,
        role=Role.OWNER,
        operator=operator,
    )
