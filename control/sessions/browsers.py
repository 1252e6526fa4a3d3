"""Handles browsers: the session that a request carries, whether the console's own page sent it, and the cookie of the
response.
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
    """One per gateway. It has the settings and the pepper, and no sessions."""

    def __init__(
        self, config: ConsoleConfig, pepper: bytes, *, tls: bool, trusted_proxies: tuple[str, ...] = ()
    ) -> None:
        """Parameters: see `Site`. Raises ConfigError."""
        config.check()
        self._config = config
        self._pepper = pepper
        self._site = Site(config, tls=tls, trusted_proxies=trusted_proxies)

    def visit(self, scope: Mapping[str, Any]) -> Visit:
        """Read the browser's request from its ASGI scope."""
        return self._site.visit(scope)

    def mint(self) -> SessionToken:
        """Create a token for a new session."""
        return mint(self._pepper)

    def carries_session(self, visit: Visit) -> bool:
        """Whether the request has a session's cookie, valid or not."""
        return self._config.enabled and self.aside(visit, cookie.NAME) is not None

    def token_of(self, visit: Visit) -> SessionToken | None:
        """The token of the request's session; None without a cookie, or if it was not made here."""
        secret = self.aside(visit, cookie.NAME) if self._config.enabled else None
        return None if secret is None else opened(self._pepper, secret)

    def require_intent(self, visit: Visit, token: SessionToken) -> None:
        """Require that the session's own page sent the change. Raises ForeignPage, CsrfRefused."""
        visit.require_own_page()
        if visit.method in SAFE:
            return
        value = visit.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(value.encode("utf-8", "replace"), token.csrf.encode()):
            fault = "does not belong to this session" if value else "is missing"
            raise CsrfRefused(
                f"X-CSRF-Token {fault}; send the csrf_token that GET /console/api/session gives for this session."
            )

    def kept(self, visit: Visit, token: SessionToken) -> Cookie:
        """`Set-Cookie` for a session; the server decides when it ends."""
        lifetime_s = int(self._config.session_lifetime_s)
        return cookie.kept(cookie.NAME, token.secret, secure=self._secure(visit), max_age_s=lifetime_s)

    def forgotten(self, visit: Visit) -> Cookie:
        """`Set-Cookie` that ends a session."""
        return cookie.kept(cookie.NAME, "", secure=self._secure(visit), max_age_s=0)

    def kept_aside(self, visit: Visit, name: str, value: str, max_age_s: int) -> Cookie:
        """`Set-Cookie` for another cookie of the same kind; max_age_s: 0 to delete it."""
        return cookie.kept(name, value, secure=self._secure(visit), max_age_s=max_age_s)

    def aside(self, visit: Visit, name: str) -> str | None:
        """The value of such a cookie."""
        return cookie.read(visit.headers.get("cookie", ""), name, secure=self._secure(visit))

    def _secure(self, visit: Visit) -> bool:
        return visit.secure or self._config.secure_cookies == "always"
