"""Who somebody of the provider is here: by group where the settings say so, by subject, or by a verified address."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import Conflict, SignInRefused
from gateway.admin.call import AdminCall
from gateway.admin.principal import NO_KEY, Principal
from gateway.admin.resources.members import MEMBERS, MemberChanges, NewMember, create_member
from gateway.admin.transaction import recorded
from gateway.audit.log import Actor
from gateway.console.accounts import Account, by_id
from gateway.console.console import ConsoleCall
from gateway.console.oidc.identity import Identity
from gateway.console.schema import SignInMethod
from gateway.console.sessions import acting, begin
from gateway.sessions.config import GroupRole
from gateway.tenants.roles import PrincipalKind, Role

ACTOR = "slipstream gateway (OpenID Connect)"
LONGEST_NAME = 200
ORGANIZATION = """
SELECT id FROM gateway.organizations WHERE CASE WHEN $1 = 'operator' THEN operator ELSE id::text = lower($1) END
"""
# Known by subject before by address, and the operating organization before the oldest: no tenant that adds somebody's
# address to its members leads them elsewhere.
MEMBER = """
SELECT member.id, account.oidc_issuer, account.oidc_subject
  FROM gateway.principals AS member
  JOIN gateway.organizations ON organizations.id = member.organization_id
  LEFT JOIN gateway.console_accounts AS account ON account.principal_id = member.id
 WHERE member.kind = 'member' AND ($4::uuid IS NULL OR member.organization_id = $4)
   AND (account.oidc_issuer = $1 AND account.oidc_subject = $2 OR lower(member.email) = lower($3))
 ORDER BY (account.oidc_issuer = $1 AND account.oidc_subject = $2) IS TRUE DESC,
          organizations.operator DESC, member.created_at, member.id
 LIMIT 1
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
    """Somebody the provider knows, who may not come in. why: for the page."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The provider's sign-in opens nothing here: {why}.")
        self.why = why


async def enter(call: ConsoleCall, identity: Identity) -> None:
    """Begin a session of whoever this is. Raises NoEntrance, TenantDisabled."""

    async def find(connection: asyncpg.Connection[Any]) -> Account:
        admin = call.console.admin.call(connection, _gateway(), call.request_id)
        try:
            async with recorded(admin, Actor.system(ACTOR)):
                return await _account(call, admin, identity)
        except Conflict:  # two of one person's first sign-ins at once: the other one made it
            raise NoEntrance("oidc_failed") from None

    account = await call.work(find)
    account.require_enabled()

    async def start(connection: asyncpg.Connection[Any]) -> None:
        async with acting(call, connection, account) as admin:
            await begin(call, connection, admin, account, SignInMethod.OIDC)

    await call.work(start)


def role_of(groups: tuple[str, ...], mapping: tuple[GroupRole, ...]) -> GroupRole | None:
    """The first entry whose group is among these."""
    return next((each for each in mapping if each.group in groups), None)


async def _account(call: ConsoleCall, admin: AdminCall, identity: Identity) -> Account:
    mapping = call.console.config.oidc.groups
    given = role_of(identity.groups, mapping)
    if mapping and given is None:
        raise NoEntrance("oidc_no_role")
    connection, organization_id = admin.connection, None
    if given is not None:
        organization_id = await connection.fetchval(ORGANIZATION, given.organization)
        if organization_id is None:
            raise NoEntrance("oidc_no_organization")
    row = await connection.fetchrow(MEMBER, identity.issuer, identity.subject, identity.email, organization_id)
    if row is not None:
        member_id: UUID = row["id"]
        if row["oidc_issuer"] is not None and (row["oidc_issuer"], row["oidc_subject"]) != (
            identity.issuer,
            identity.subject,
        ):
            raise NoEntrance("oidc_other_person")
        if given is not None:
            await _give(admin, member_id, given.role)
    elif given is None or organization_id is None or identity.email is None:
        raise NoEntrance("oidc_no_member")
    else:
        member_id = await _make(admin, organization_id, identity, given.role)
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
    return account


async def _give(admin: AdminCall, member_id: UUID, role: Role) -> None:
    """The role that the groups say; the last owner of an organization stays one."""
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
    except msgspec.ValidationError:  # an address that is none, or a name with control characters
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
