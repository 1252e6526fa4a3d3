"""Checks the setting `gateway.cors_origins`, the origins of web pages."""

from __future__ import annotations

from urllib.parse import urlsplit

from contracts.errors import ConfigError

ANY = "*"


def checked_origins(origins: tuple[str, ...]) -> frozenset[bytes]:
    """The setting's entries, as browsers write them. Raises ConfigError."""
    for number, origin in enumerate(origins):
        parts = urlsplit(origin)
        whole = f"{parts.scheme}://{parts.netloc}".lower()
        if origin != ANY and (parts.scheme not in ("http", "https") or not parts.hostname or whole != origin):
            param = f"gateway.cors_origins[{number}]"
            raise ConfigError(
                f"{param}: {origin!r} is not an origin; write a scheme and a host in lower case, with a port "
                f"where it is not the usual one, as https://app.example.com, or {ANY!r} for all",
                param=param,
            )
    return frozenset(origin.encode() for origin in origins)
