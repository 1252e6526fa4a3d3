"""One sign-in by the provider, from the button to the session.

The state for the browser's return is sealed in that browser's cookie for ten minutes: any gateway can continue, but no
other browser can.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import asyncpg
import msgspec

from contracts.errors import NotFound, SessionEnded, SlipstreamError
from control.api.schemas import Query
from control.api.sealed import seal, unseal
from control.console.console import ConsoleCall
from control.console.oidc.destination import own
from control.console.oidc.entrance import NoEntrance, SeveralOrganizations, enter, organizations_of
from control.console.oidc.identity import Identity, IdentityRefused, ProviderUnavailable
from control.console.schema import ConsoleOrganization, ConsoleSession, OrganizationChoice, OrganizationChoices
from control.console.sessions import show

if TYPE_CHECKING:
    from control.console.oidc.provider import Provider

COOKIE = "slipstream-oidc"
PROVED = "slipstream-oidc-proved"
"""Cookie of a person with a verified identity who has to choose an organization."""
CALLBACK = "/console/api/oidc/callback"
SIGN_IN = "/console/#/sign-in?error="
CHOOSE = "/console/#/sign-in?choose=organization&next="
WAIT_S = 600
USE = "console oidc"
VERIFIER_BYTES = 48

_log = logging.getLogger(__name__)


class Pending(msgspec.Struct, frozen=True):
    """A sign-in that has begun."""

    state: str
    nonce: str
    verifier: str
    next: str
    until_s: float
    """In seconds since 1970."""


class Proved(msgspec.Struct, frozen=True):
    """A proved identity whose person has to choose an organization."""

    issuer: str
    subject: str
    email: str | None
    until_s: float
    """In seconds since 1970."""

    @property
    def identity(self) -> Identity:
        """The identity, without groups: they are not used when a person chooses."""
        return Identity(issuer=self.issuer, subject=self.subject, email=self.email, name=None, groups=())


class Beginning(Query, frozen=True, kw_only=True):
    """Destination after sign-in."""

    next: str | None = None
    """A page of the console; any other value means its first page."""


class Returning(Query, frozen=True, kw_only=True):
    """The provider's parameters in the browser's return."""

    state: str | None = None
    code: str | None = None
    error: str | None = None
    error_description: str | None = None
    iss: str | None = None
    session_state: str | None = None
    scope: str | None = None
    authuser: str | None = None
    prompt: str | None = None
    hd: str | None = None


async def start_oidc(call: ConsoleCall, query: Beginning) -> str:
    """Send the browser to the provider of identities."""
    provider = _provider(call)
    pending = Pending(
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(32),
        secrets.token_urlsafe(VERIFIER_BYTES),
        own(query.next),
        time.time() + WAIT_S,
    )
    try:
        address = await provider.address(_callback(call), pending.state, pending.nonce, pending.verifier)
    except ProviderUnavailable as error:
        _log.warning("the identity provider could not be reached: %s", error)
        return f"{SIGN_IN}oidc_unavailable"
    call.cookies.append(call.console.browsers.kept_aside(call.visit, COOKIE, _sealed(call, pending), WAIT_S))
    return address


async def finish_oidc(call: ConsoleCall, query: Returning) -> str:
    """Sign in the person who comes back from the provider."""
    provider = _provider(call)
    pending = _pending(call)
    call.cookies.append(call.console.browsers.kept_aside(call.visit, COOKIE, "", 0))
    if pending is None or not hmac.compare_digest((query.state or "").encode(), pending.state.encode()):
        return f"{SIGN_IN}oidc_expired"
    if query.error is not None or query.code is None:
        return f"{SIGN_IN}oidc_denied"
    if query.iss is not None and query.iss != call.console.config.oidc.issuer:  # RFC 9207
        return f"{SIGN_IN}oidc_failed"
    try:
        identity = await provider.identity(_callback(call), query.code, pending.nonce, pending.verifier)
        try:
            await enter(call, identity)
        except SeveralOrganizations:
            proved = Proved(identity.issuer, identity.subject, identity.email, time.time() + WAIT_S)
            call.cookies.append(call.console.browsers.kept_aside(call.visit, PROVED, _sealed(call, proved), WAIT_S))
            return CHOOSE + quote(pending.next, safe="")
    except NoEntrance as error:
        return SIGN_IN + error.why
    except IdentityRefused as error:
        _log.warning("the identity provider's answer was refused: %s", error)
        return f"{SIGN_IN}oidc_failed"
    except ProviderUnavailable as error:
        _log.warning("signing in by the provider: %s", error)
        return f"{SIGN_IN}oidc_unavailable"
    except SlipstreamError as error:  # the browser shows a page, not an error body
        return SIGN_IN + error.code
    return pending.next


async def get_choices(call: ConsoleCall) -> OrganizationChoices:
    """List the organizations to choose from, after the provider has proved the identity."""
    proved = _proved(call)

    async def find(connection: asyncpg.Connection[Any]) -> list[ConsoleOrganization]:
        return await organizations_of(connection, proved.identity)

    return OrganizationChoices(data=await call.work(find))


async def choose_organization(call: ConsoleCall, body: OrganizationChoice) -> ConsoleSession:
    """Sign in to one of them with the proved identity."""
    account = await enter(call, _proved(call).identity, body.organization_id)
    call.cookies.append(call.console.browsers.kept_aside(call.visit, PROVED, "", 0))
    return await show(call, account)


def _provider(call: ConsoleCall) -> Provider:
    if call.console.provider is None:
        raise NotFound("No identity provider is configured (gateway.console.oidc).")
    return call.console.provider


def _callback(call: ConsoleCall) -> str:
    return call.visit.origin + CALLBACK


def _pending(call: ConsoleCall) -> Pending | None:
    """The sign-in that this browser began; None if none may continue."""
    return _opened(call, COOKIE, Pending)


def _proved(call: ConsoleCall) -> Proved:
    """The proved identity of this browser. Raises SessionEnded."""
    proved = _opened(call, PROVED, Proved)
    if proved is None:
        raise SessionEnded("This browser has no recent sign-in with the identity provider; sign in again.")
    return proved


KeptT = TypeVar("KeptT", Pending, Proved)


def _sealed(call: ConsoleCall, state: Pending | Proved) -> str:
    plain = msgspec.json.encode(state)
    sealed = base64.urlsafe_b64encode(seal(call.console.pepper, f"{USE} {type(state).__name__}", plain))
    return sealed.decode().rstrip("=")  # a cookie would have to quote it


def _opened(call: ConsoleCall, cookie: str, kind: type[KeptT]) -> KeptT | None:
    """The cookie's contents; None if it is missing, forged or expired."""
    sealed = call.console.browsers.aside(call.visit, cookie)
    if not sealed:
        return None
    try:
        raw = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
        kept = msgspec.json.decode(unseal(call.console.pepper, f"{USE} {kind.__name__}", raw), type=kind)
    except (ValueError, binascii.Error):
        return None
    return kept if kept.until_s > time.time() else None
