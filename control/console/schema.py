"""Request and response bodies of the console's own routes."""

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
    """Method of a sign-in."""

    PASSWORD = "password"
    OIDC = "oidc"
    LINK = "link"


class LinkKind(StrEnum):
    """Purpose of a one-time link."""

    FIRST = "first"
    """Make the first owner of the deployment."""
    INVITATION = "invitation"
    """Create an account for a member without one."""
    RESET = "reset"
    """Give an account another password."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """An identity provider. name: the label of its button. start: the URL at which the browser begins."""

    name: str
    start: str


class Methods(msgspec.Struct, frozen=True, kw_only=True):
    """Ways to sign in that this deployment offers."""

    password: bool
    oidc: Provider | None


class ConsoleAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The signed-in account. member_id: the same person in the admin API. has_password: false for sign-in by a provider
    only."""

    id: UUID
    member_id: UUID
    email: str
    name: str
    has_password: bool
    totp: bool
    recovery_codes_left: int
    created_at: datetime


class ConsoleOrganization(msgspec.Struct, frozen=True, kw_only=True):
    """The organization of the session."""

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
    """The signed-in person, their role and its permissions, and the token that every request other than GET must
    return.

    operator: whether the person belongs to the operating organization, so that the role applies to every organization.
    currency: the currency of all amounts in this deployment.
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
    """signed_in: null if nobody is signed in."""

    signed_in: SignedIn | None
    methods: Methods


class SignIn(Body, frozen=True, kw_only=True):
    """totp: a code from the authenticator or a recovery code, for accounts with an authenticator. organization_id:
    required if the address and password belong to several organizations."""

    email: Email
    password: Secret
    totp: Code | None = None
    organization_id: UUID | None = None


class LinkPreviewed(Body, frozen=True, kw_only=True):
    """token: the token of a one-time link."""

    token: LinkToken


class LinkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The purpose of a one-time link. email: null if the person enters it."""

    kind: LinkKind
    email: str | None
    name: str | None
    organization: str
    expires_at: datetime


class Welcome(Body, frozen=True, kw_only=True):
    """email and name: for a link without a member (`first`); for other links, they are known."""

    token: LinkToken
    password: Secret
    email: Email | None = None
    name: Name | None = None


class PasswordChange(Body, frozen=True, kw_only=True):
    """A change of the password. All other sessions of the account end."""

    current_password: Secret
    new_password: Secret


class PasswordConfirmed(Body, frozen=True, kw_only=True):
    """password: the account's current password."""

    password: Secret


class TotpEnrolment(msgspec.Struct, frozen=True, kw_only=True):
    """secret: in base 32, for typing. uri: `otpauth://…`, for a QR code. The authenticator takes effect once one of its
    codes is confirmed."""

    secret: str
    uri: str


class TotpConfirmation(Body, frozen=True, kw_only=True):
    """code: a code from the authenticator that was just set up."""

    code: Code


class TotpConfirmed(msgspec.Struct, frozen=True, kw_only=True):
    """recovery_codes: shown only in this response. Each is valid once, in place of an authenticator's code."""

    recovery_codes: list[str]
    session: ConsoleSession


class TotpDisabling(Body, frozen=True, kw_only=True):
    """code: a code from the authenticator, or a recovery code."""

    password: Secret
    code: Code


class RecoveryCodes(msgspec.Struct, frozen=True, kw_only=True):
    """Shown only in this response. All earlier recovery codes become invalid."""

    recovery_codes: list[str]


class OwnSessions(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions that have not ended, newest first."""

    data: list[OwnSession]


class SessionsEnding(Query, frozen=True, kw_only=True):
    """Sessions to end."""

    keep_current: bool = False
    """Keep the session of this request."""


class SessionsEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Number of ended sessions."""

    ended: int
