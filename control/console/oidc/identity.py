"""Who somebody is by a provider of identities, and why nobody can be told."""

from __future__ import annotations

import msgspec


class ProviderUnavailable(Exception):
    """It does not answer, or not as a provider does."""


class IdentityRefused(Exception):
    """What came back is no proof of who somebody is."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who somebody is, as the provider has proved. email: verified ones only."""

    issuer: str
    subject: str
    email: str | None
    name: str | None
    groups: tuple[str, ...]
