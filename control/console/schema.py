"""What the console's own routes take and answer."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from control.api.schemas import Body, Email, Name, Query
from storage.roles import Permission, Role

Secret = Annotated[str, Meta(min_length=1, max_length=1_024, description="a password of at most 1024 characters")]
Code = Annotated[str, Meta(min_length=6, max_length=40, description="six digits, or a recovery code")]
LinkToken = Annotated[str, Meta(min_length=1, max_length=200)]


class SignInMethod(StrEnum):
    """How somebody signed in."""

    PASSWORD = "password"
    OIDC = "oidc"
    LINK = "link"


class LinkKind(StrEnum):
    """What a one-time link is for."""

    FIRST = "first"
    """Make the first owner of the deployment."""
    INVITATION = "invitation"
    """Give a member, who has none, an account."""
    RESET = "reset"
    """Give an account another password."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of identities. name: what the button says. start: where the browser goes to begin."""

    name: str
    start: str


class Methods(msgspec.Struct, frozen=True, kw_only=True):
    """Ways to sign in that this deployment offers."""

    password: bool
    oidc: Provider | None


class ConsoleAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Who is signed in. member_id: the same person in the admin API. has_password: false for who signs in by a
    provider only."""

    id: UUID
    member_id: UUID
    email: str
    name: str
    has_password: bool
    totp: bool
    recovery_codes_left: int
    created_at: datetime


class ConsoleOrganization(msgspec.Struct, frozen=True, kw_only=True):
    """The organization somebody is signed in to."""

    id: UUID
    name: str


class OrganizationChoices(msgspec.Struct, frozen=True, kw_only=True):
    """Organizations that a person of the provider may sign in to."""

    data: list[ConsoleOrganization]


class OrganizationChoice(Body, frozen=True, kw_only=True):
    """organization_id: one of them."""

    organization_id: UUID


class OwnSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session. network: where it began; idle_expires_at: when it ends if it is not used until then."""

    id: UUID
    method: SignInMethod
    network: str
    user_agent: str
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    idle_expires_at: datetime
    current: bool


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody, their role and what it allows, and the token that every request but GET must send back.

    operator: of the operating organization: the role holds in every organization. currency: what all amounts of the
    deployment are in.
    """

    account: ConsoleAccount
    organization: ConsoleOrganization
    operator: bool
    role: Role
    permissions: list[Permission]
    currency: str
    session: OwnSession
    csrf_token: str


class ConsoleSession(msgspec.Struct, frozen=True, kw_only=True):
    """signed_in: null: nobody is."""

    signed_in: SignedIn | None
    methods: Methods


class SignIn(Body, frozen=True, kw_only=True):
    """totp: a code of the authenticator or a recovery code, for accounts that have one. organization_id: which of them,
    where the same address and password open several."""

    email: Email
    password: Secret
    totp: Code | None = None
    organization_id: UUID | None = None


class LinkPreviewed(Body, frozen=True, kw_only=True):
    """token: of a one-time link."""

    token: LinkToken


class LinkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a one-time link is for. email: null: the person says it."""

    kind: LinkKind
    email: str | None
    name: str | None
    organization: str
    expires_at: datetime


class Welcome(Body, frozen=True, kw_only=True):
    """email and name: for a link that names nobody (`first`); of others they are known."""

    token: LinkToken
    password: Secret
    email: Email | None = None
    name: Name | None = None


class PasswordChange(Body, frozen=True, kw_only=True):
    """All other sessions of the account end."""

    current_password: Secret
    new_password: Secret


class PasswordConfirmed(Body, frozen=True, kw_only=True):
    """password: the account's own, once more."""

    password: Secret


class TotpEnrolment(msgspec.Struct, frozen=True, kw_only=True):
    """secret: in base 32, for typing; uri: `otpauth://…`, for a QR code. Not in force until a code of it is
    confirmed."""

    secret: str
    uri: str


class TotpConfirmation(Body, frozen=True, kw_only=True):
    """code: of the authenticator that was just set up."""

    code: Code


class TotpConfirmed(msgspec.Struct, frozen=True, kw_only=True):
    """recovery_codes: shown now and never again; each opens once, in place of a code."""

    recovery_codes: list[str]
    session: ConsoleSession


class TotpDisabling(Body, frozen=True, kw_only=True):
    """code: of the authenticator, or a recovery code."""

    password: Secret
    code: Code


class RecoveryCodes(msgspec.Struct, frozen=True, kw_only=True):
    """Shown now and never again; those before open nothing any more."""

    recovery_codes: list[str]


class OwnSessions(msgspec.Struct, frozen=True, kw_only=True):
    """All that have not ended, the newest first."""

    data: list[OwnSession]


class SessionsEnding(Query, frozen=True, kw_only=True):
    """Which to end."""

    keep_current: bool = False
    """All but the one that asks."""


class SessionsEnded(msgspec.Struct, frozen=True, kw_only=True):
    """How many."""

    ended: int
