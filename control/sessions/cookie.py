"""The session cookie: its names, the browser's value, and the response headers for it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from litestar.datastructures import Cookie

NAME = "slipstream-session"
HOST_PREFIX = "__Host-"
"""Browsers accept a cookie with this prefix only over TLS, for the whole host and from the host itself, so that no
neighbouring site can plant one."""


def name_of(base: str, *, secure: bool) -> str:
    """The full name of a cookie."""
    return HOST_PREFIX + base if secure else base


def read(header: str, base: str, *, secure: bool) -> str | None:
    """The value that a browser sent. Over TLS, only the prefixed name counts: the other may have been planted."""
    wanted = name_of(base, secure=secure)
    return next((value for name, value in _pairs(header) if name == wanted), None)


def kept(base: str, value: str, *, secure: bool, max_age_s: int) -> Cookie:
    """The header that makes a browser keep the cookie for this time, or delete it (0)."""
    return Cookie(
        key=name_of(base, secure=secure),
        value=value,
        path="/",
        httponly=True,
        samesite="lax",
        secure=secure,
        max_age=max_age_s,
    )


def _pairs(header: str) -> Iterator[tuple[str, str]]:
    for part in header.split(";"):
        name, equals, value = part.strip().partition("=")
        if equals:
            yield name, value
