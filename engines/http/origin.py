"""The address of a replica, parsed from its URL."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

import msgspec

from contracts.addresses import carried
from contracts.errors import ConfigError

CLIENTS_END = "/v1"
_PRIVATE_DOMAINS = (".internal", ".local", ".localhost", ".lan", ".home.arpa", ".svc", ".test")
"""Domains that the public DNS does not have (RFC 6761, 6762, 8375, ICANN's `internal`), or that Kubernetes assigns."""


class Origin(msgspec.Struct, frozen=True):
    """The address of a replica. prefix: path before every request's path, without a trailing slash. It does not end in
    `/v1`, with which requests' paths begin: operators often paste the base URL of an SDK."""

    secure: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Origin:
        """The address in a URL. Raises ConfigError unless it is http(s)://host[:port][/prefix]."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"replica url {url!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ConfigError(f"replica url {url!r}: must look like http://host:port")
        if any(character <= " " or character > "~" for character in url):
            raise ConfigError(f"replica url {url!r}: must be printable ASCII without spaces")
        secure = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix(CLIENTS_END).rstrip("/")
        return cls(secure, parts.hostname, port or (443 if secure else 80), prefix)

    @property
    def private(self) -> bool | None:
        """Whether the host is in a private network or is this machine; None for a name that only DNS could resolve."""
        address: ipaddress.IPv4Address | ipaddress.IPv6Address
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            try:
                address = ipaddress.IPv4Address(socket.inet_aton(self.host))  # resolvers accept 134744072 as an address
            except OSError:
                return True if "." not in self.host or self.host.endswith(_PRIVATE_DOMAINS) else None
        return not (carried(address) or address).is_global

    @property
    def place(self) -> str:
        """The replica's name in errors."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
