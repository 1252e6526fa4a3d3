"""One sign-in by the provider, from the button to the session.

What must be known when the browser comes back lies sealed in a cookie of that browser, for ten minutes: any gateway can
go on with it, and nobody else's browser can.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import secrets
import time
from typing import TYPE_CHECKING

import msgspec

from contracts.errors import NotFound, SlipstreamError
from gateway.admin.schemas import Query
from gateway.admin.sealed import seal, unseal
from gateway.console.console import ConsoleCall
from gateway.console.oidc.destination import own
from gateway.console.oidc.entrance import NoEntrance, enter
from gateway.console.oidc.identity import IdentityRefused, ProviderUnavailable

if TYPE_CHECKING:
    from gateway.console.oidc.provider import Provider

COOKIE = "slipstream-oidc"
CALLBACK = "/console/api/oidc/callback"
SIGN_IN = "/console/#/sign-in?error="
WAIT_S = 600
USE = "console oidc"
VERIFIER_BYTES = 48

_log = logging.getLogger(__name__)


class Pending(msgspec.Struct, frozen=True):
    """A sign-in that was begun."""

    state: str
    nonce: str
    verifier: str
    next: str
    until_s: float
    """Since 1970."""


class Beginning(Query, frozen=True, kw_only=True):
    """Where to go afterwards."""

    next: str | None = None
    """A page of the console; anything else is its first page."""


class Returning(Query, frozen=True, kw_only=True):
    """What the provider sends back by the browser."""

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
        _log.warning("signing in by the provider: %s", error)
        return f"{SIGN_IN}oidc_unavailable"
    sealed = base64.urlsafe_b64encode(seal(call.console.pepper, USE, msgspec.json.encode(pending))).decode()
    sealed = sealed.rstrip("=")  # which a cookie would have to quote
    call.cookies.append(call.console.browsers.kept_aside(call.visit, COOKIE, sealed, WAIT_S))
    return address


async def finish_oidc(call: ConsoleCall, query: Returning) -> str:
    """Sign in whoever comes back from the provider."""
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
        await enter(call, identity)
    except NoEntrance as error:
        return SIGN_IN + error.why
    except IdentityRefused as error:
        _log.warning("signing in by the provider: %s", error)
        return f"{SIGN_IN}oidc_failed"
    except ProviderUnavailable as error:
        _log.warning("signing in by the provider: %s", error)
        return f"{SIGN_IN}oidc_unavailable"
    except SlipstreamError as error:  # a page is answered with a page
        return SIGN_IN + error.code
    return pending.next


def _provider(call: ConsoleCall) -> Provider:
    if call.console.provider is None:
        raise NotFound("No provider of identities is set here (gateway.console.oidc).")
    return call.console.provider


def _callback(call: ConsoleCall) -> str:
    return call.visit.origin + CALLBACK


def _pending(call: ConsoleCall) -> Pending | None:
    """The sign-in that this browser began; None: none that may go on."""
    sealed = call.console.browsers.aside(call.visit, COOKIE)
    if not sealed:
        return None
    try:
        plain = unseal(call.console.pepper, USE, base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)))
    except (ValueError, binascii.Error):
        return None
    pending = msgspec.json.decode(plain, type=Pending)
    return pending if pending.until_s > time.time() else None
