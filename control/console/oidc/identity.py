"""A person's identity by a provider, and the errors if there is none."""

from __future__ import annotations

import msgspec


class ProviderUnavailable(Exception):
    """The provider does not respond, or its response is invalid."""


class IdentityRefused(Exception):
    """The provider's response does not prove an identity."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A person's identity, verified by the provider. email: None unless verified."""

    issuer: str
    subject: str
    email: str | None
    name: str | None
    groups: tuple[str, ...]
