"""Browsers, as the gateway meets them: the session that a request carries, whether our own page sent it, and the cookie
that goes back.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from litestar.datastructures import Cookie

from contracts.errors import CsrfRefused
from control.sessions import cookie
from control.sessions.config import ConsoleConfig
from control.sessions.site import SAFE, Site, Visit
from control.sessions.token import SessionToken, mint, opened

CSRF_HEADER = "x-csrf-token"


class Browsers:
    """One per gateway; knows the settings and the pepper, and no session."""

    def __init__(
        self, config: ConsoleConfig, pepper: bytes, *, tls: bool, trusted_proxies: tuple[str, ...] = ()
    ) -> None:
        """Parameters: see `Site`. Raises ConfigError."""
        config.check()
        self._config = config
        self._pepper = pepper
        self._site = Site(config, tls=tls, trusted_proxies=trusted_proxies)

    def visit(self, scope: Mapping[str, Any]) -> Visit:
        """What the ASGI scope of a request says of the browser."""
        return self._site.visit(scope)

    def mint(self) -> SessionToken:
        """For a new session."""
        return mint(self._pepper)

    def carries_session(self, visit: Visit) -> bool:
        """Whether the request has a session's cookie, whatever it is worth."""
        return self._config.enabled and self.aside(visit, cookie.NAME) is not None

    def token_of(self, visit: Visit) -> SessionToken | None:
        """The session's that the request carries; None: none, or none that was made here."""
        secret = self.aside(visit, cookie.NAME) if self._config.enabled else None
        return None if secret is None else opened(self._pepper, secret)

    def require_intent(self, visit: Visit, token: SessionToken) -> None:
        """Require that the session's own page sent the change. Raises ForeignPage, CsrfRefused."""
        visit.require_own_page()
        if visit.method in SAFE:
            return
        given = visit.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), token.csrf.encode()):
            said = "does not belong to this session" if given else "is missing"
            raise CsrfRefused(
                f"X-CSRF-Token {said}; send the csrf_token that GET /console/api/session gives for this session."
            )

    def kept(self, visit: Visit, token: SessionToken) -> Cookie:
        """`Set-Cookie` for a session; the server says when it ends."""
        lifetime_s = int(self._config.session_lifetime_s)
        return cookie.kept(cookie.NAME, token.secret, secure=self._secure(visit), max_age_s=lifetime_s)

    def forgotten(self, visit: Visit) -> Cookie:
        """`Set-Cookie` for who is signed out."""
        return cookie.kept(cookie.NAME, "", secure=self._secure(visit), max_age_s=0)

    def kept_aside(self, visit: Visit, name: str, value: str, max_age_s: int) -> Cookie:
        """`Set-Cookie` for another cookie of the same kind; max_age_s: 0 to forget it."""
        return cookie.kept(name, value, secure=self._secure(visit), max_age_s=max_age_s)

    def aside(self, visit: Visit, name: str) -> str | None:
        """That cookie's value."""
        return cookie.read(visit.headers.get("cookie", ""), name, secure=self._secure(visit))

    def _secure(self, visit: Visit) -> bool:
        return visit.secure or self._config.secure_cookies == "always"
