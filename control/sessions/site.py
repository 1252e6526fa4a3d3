"""Reads a browser's request: its origin, whether it came over TLS, its network, and which site's page sent it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from contracts.errors import ForeignPage
from control.sessions.config import ConsoleConfig
from gateway.http.networks import Network, forwarded_address, is_among, network_of, trusted_networks

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
OWN = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for the console's own page and for a typed address."""
LONGEST_USER_AGENT = 400


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A browser's request before its session is known."""

    method: str
    headers: Mapping[str, str]
    """Names in lower case."""
    origin: str
    """Origin of the console's pages in this browser, such as `https://slipstream.example.com`."""
    network: str
    """The client's address, or its /64 for IPv6."""

    @property
    def secure(self) -> bool:
        """Whether the request came over TLS."""
        return self.origin.startswith("https://")

    @property
    def user_agent(self) -> str:
        """The browser's name for itself, shortened, without characters that a database cannot store."""
        text = self.headers.get("user-agent", "").replace("\0", "")
        return text.encode("utf-8", "ignore").decode()[:LONGEST_USER_AGENT]

    def require_own_page(self) -> None:
        """Raises ForeignPage for a request that changes something and that another site's page sent.

        Browsers send a request's origin in `Sec-Fetch-Site` and `Origin`, and no page can change these headers. A
        program that sends neither has no cookies that another site could use.
        """
        if self.method in SAFE:
            return
        site, origin = self.headers.get("sec-fetch-site"), self.headers.get("origin")
        if site is not None and site not in OWN:
            raise ForeignPage(f"This request was sent by a page of another site (Sec-Fetch-Site: {site[:40]!r}).")
        if origin is not None and origin != self.origin:
            raise ForeignPage(
                f"This request was sent by a page of {origin[:200]!r}, but this site is {self.origin!r}. With a "
                "proxy, set gateway.console.public_url to the address that browsers use."
            )


class Site:
    """This gateway's address for browsers, by its settings."""

    def __init__(self, config: ConsoleConfig, *, tls: bool, trusted_proxies: tuple[str, ...] = ()) -> None:
        """tls: whether the gateway itself terminates TLS. Raises ConfigError if a proxy is not an address."""
        self._public_url = config.public_url
        self._tls = tls
        self._trusted: tuple[Network, ...] = tuple(trusted_networks(trusted_proxies))

    def visit(self, scope: Mapping[str, Any]) -> Visit:
        """Read the ASGI scope of a request."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        peer = (scope.get("client") or ("",))[0]
        proxied = is_among(peer, self._trusted)
        origin = self._public_url
        if not origin:
            forwarded = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower() if proxied else ""
            scheme = forwarded if forwarded in ("http", "https") else "https" if self._tls else "http"
            origin = f"{scheme}://{headers.get('host', '').lower()}"
        client = forwarded_address(headers.get("x-forwarded-for", ""), self._trusted) if proxied else ""
        return Visit(method=scope["method"], headers=headers, origin=origin, network=network_of(client or peer))
