"""Maps a provider's identity to a member: by group if the settings map groups, by subject, or by a verified address."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import Conflict, SignInRefused
from control.api.call import AdminCall
from control.api.principal import NO_KEY, Principal
from control.api.transaction import recorded
from control.console.accounts import Account, by_id
from control.console.console import ConsoleCall
from control.console.oidc.identity import Identity
from control.console.schema import ConsoleOrganization, SignInMethod
from control.console.sessions import acting, begin
from control.sessions.config import GroupRole
from control.tenants.members import MEMBERS, MemberChanges, NewMember, create_member
from storage.audit_log import Actor
from storage.roles import PrincipalKind, Role

ACTOR = "slipstream gateway (OpenID Connect)"
LONGEST_NAME = 200
ORGANIZATION = """
SELECT id FROM gateway.organizations WHERE CASE WHEN $1 = 'operator' THEN operator ELSE id::text = lower($1) END
"""
# Members of this identity, and members with its address that no identity has taken yet. The first is the default; if
# groups name the organization, there is at most one.
OF_PERSON = """
SELECT member.id, organizations.id AS organization_id, organizations.name,
       (account.oidc_issuer = $1 AND account.oidc_subject = $2) IS TRUE AS is_theirs,
       account.oidc_issuer IS NULL AS is_free,
       member.disabled_at IS NOT NULL OR organizations.disabled_at IS NOT NULL AS is_disabled
  FROM gateway.principals AS member
  JOIN gateway.organizations ON organizations.id = member.organization_id
  LEFT JOIN gateway.console_accounts AS account ON account.principal_id = member.id
 WHERE member.kind = 'member' AND ($4::uuid IS NULL OR member.organization_id = $4)
   AND (account.oidc_issuer = $1 AND account.oidc_subject = $2 OR lower(member.email) = lower($3))
 ORDER BY is_disabled, is_theirs DESC, organizations.operator DESC, member.created_at, member.id
 LIMIT 100
"""
PUT = """
INSERT INTO gateway.console_accounts AS account (principal_id, oidc_issuer, oidc_subject) VALUES ($1, $2, $3)
    ON CONFLICT (principal_id) DO UPDATE
   SET oidc_issuer = excluded.oidc_issuer, oidc_subject = excluded.oidc_subject
 WHERE account.oidc_issuer IS NULL OR account.oidc_issuer = excluded.oidc_issuer
   AND account.oidc_subject = excluded.oidc_subject
RETURNING id, xmax = 0 AS made
"""


class NoEntrance(SignInRefused):
    """The provider knows the person, who has no access here. why: for the page."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The provider's sign-in is not valid here: {why}.")
        self.why = why


class SeveralOrganizations(SignInRefused):
    """The person is a member of several organizations and has to choose one."""

    def __init__(self) -> None:
        super().__init__("You are a member of several organizations; choose one.")


async def organizations_of(connection: asyncpg.Connection[Any], identity: Identity) -> list[ConsoleOrganization]:
    """The organizations that an identity may sign in to."""
    rows = await connection.fetch(OF_PERSON, identity.issuer, identity.subject, identity.email, None)
    return [ConsoleOrganization(id=row["organization_id"], name=row["name"]) for row in _open_to(rows)]


async def enter(call: ConsoleCall, identity: Identity, organization_id: UUID | None = None) -> Account:
    """Begin a session of the identity's member. organization_id: the chosen one. Raises NoEntrance, TenantDisabled,
    SeveralOrganizations."""

    async def find(connection: asyncpg.Connection[Any]) -> Account:
        admin = call.console.admin.call(connection, _gateway(), call.request_id)
        try:
            async with recorded(admin, Actor.system(ACTOR)):
                return await _account(call, admin, identity, organization_id)
        except Conflict:  # two concurrent first sign-ins of one person: the other one created it
            raise NoEntrance("oidc_failed") from None

    account = await call.work(find)
    account.require_enabled()

    async def start(connection: asyncpg.Connection[Any]) -> None:
        async with acting(call, connection, account) as admin:
            await begin(call, connection, admin, account, SignInMethod.OIDC)

    await call.work(start)
    return account


def role_of(groups: tuple[str, ...], mapping: tuple[GroupRole, ...]) -> GroupRole | None:
    """The first entry whose group is among these."""
    return next((each for each in mapping if each.group in groups), None)


async def _account(call: ConsoleCall, admin: AdminCall, identity: Identity, organization_id: UUID | None) -> Account:
    mapping = call.console.config.oidc.groups
    mapped = role_of(identity.groups, mapping)
    if mapping and mapped is None:
        raise NoEntrance("oidc_no_role")
    connection = admin.connection
    if mapped is not None:
        organization_id = await connection.fetchval(ORGANIZATION, mapped.organization)
        if organization_id is None:
            raise NoEntrance("oidc_no_organization")
    rows = await connection.fetch(OF_PERSON, identity.issuer, identity.subject, identity.email, organization_id)
    open_to = _open_to(rows)
    if organization_id is None and len(open_to) > 1:
        # an organization that adds a person's address must not capture that person's sign-ins
        raise SeveralOrganizations
    is_known = bool(open_to) and open_to[0]["is_theirs"]
    if open_to:
        member_id: UUID = open_to[0]["id"]
        if mapped is not None:
            await _give(admin, member_id, mapped.role)
    elif rows:
        raise NoEntrance("oidc_other_person")
    elif mapped is None or organization_id is None or identity.email is None:
        raise NoEntrance("oidc_no_member")
    else:
        member_id = await _make(admin, organization_id, identity, mapped.role)
    row = await connection.fetchrow(PUT, member_id, identity.issuer, identity.subject)
    if row is None:
        raise NoEntrance("oidc_other_person")
    account = await by_id(connection, row["id"])
    if row["made"]:
        admin.audit(
            "console_account.create",
            account.id,
            organization_id=account.organization_id,
            after={"account_id": account.id, "member_id": member_id, "issuer": identity.issuer},
        )
    elif not is_known:
        admin.audit(
            "console_account.update",
            account.id,
            organization_id=account.organization_id,
            after={"account_id": account.id, "member_id": member_id, "changed": "provider", "issuer": identity.issuer},
        )
    return account


def _open_to(rows: list[asyncpg.Record]) -> list[asyncpg.Record]:
    """Rows that belong to no other identity; a disabled one only if there is no other."""
    theirs = [row for row in rows if row["is_theirs"] or row["is_free"]]
    return [row for row in theirs if not row["is_disabled"]] or theirs[:1]


async def _give(admin: AdminCall, member_id: UUID, role: Role) -> None:
    """Give the member the role of its groups; the last owner of an organization stays one."""
    if (await MEMBERS.find(admin, member_id)).role is role:
        return
    try:
        await MEMBERS.change(admin, member_id, MemberChanges(role=role))
    except Conflict:
        return


async def _make(admin: AdminCall, organization_id: UUID, identity: Identity, role: Role) -> UUID:
    try:
        body = msgspec.convert(
            {
                "email": identity.email,
                "name": (identity.name or identity.email or "")[:LONGEST_NAME],
                "role": role.value,
            },
            NewMember,
        )
    except msgspec.ValidationError:  # an invalid address, or a name with control characters
        raise NoEntrance("oidc_no_member") from None
    return (await create_member(admin, organization_id, body)).id


def _gateway() -> Principal:
    return Principal(
        id=NO_KEY,
        key_id=NO_KEY,
        organization_id=NO_KEY,
        kind=PrincipalKind.SERVICE_ACCOUNT,
        name=ACTOR,
        email=None,
        role=Role.OWNER,
        operator=True,
    )
