"""Settings of the console: how people sign in, and how long they stay signed in."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from contracts.errors import ConfigError
from contracts.fixed import Fixed
from storage.roles import Role

OPERATOR = "operator"
"""Used instead of an id for the organization that runs the deployment."""


class GroupRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What members of one group of the identity provider are here."""

    group: Annotated[str, Meta(min_length=1, max_length=500)]
    """As the provider's claim has it."""
    role: Role
    """Their role."""
    organization: Annotated[str, Meta(min_length=1, max_length=100)] = OPERATOR
    """Id of their organization; `operator`: the one that runs the deployment."""


class OidcConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signing in by OpenID Connect: the code flow with PKCE. Off while `issuer` is empty."""

    issuer: str = ""
    """The provider's URL, as its tokens have it in `iss`; `/.well-known/openid-configuration` is read below it."""
    client_id: str = ""
    """What the provider knows this deployment by."""
    client_secret_env: str = ""
    """The NAME of an environment variable of the gateway that holds the client's secret. Empty: a public client."""
    name: Annotated[str, Meta(min_length=1, max_length=60)] = "single sign-on"
    """What the button says: `Sign in with …`."""
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    """What is asked for; a provider may want `groups` for the claim below."""
    groups_claim: str = "groups"
    """Claim of the ID token or of the user info that lists a person's groups."""
    groups: tuple[GroupRole, ...] = ()
    """Who of the provider is what here; the first that fits counts, and makes the member where there is none. Empty:
    only people who are members already, found by their verified e-mail address, sign in."""
    timeout_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 10.0
    """Longest wait for one answer of the provider."""


class ConsoleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The console, `/console`, and the sessions of those who sign in to it."""

    enabled: bool = True
    """Serve the console, and let its sessions use the admin API. Keys are not concerned."""
    public_url: str = ""
    """Where browsers find this deployment: `https://slipstream.example.com`. Empty: as each request says by its `Host`
    header, and by `X-Forwarded-Proto` where it comes from one of `gateway.connections.trusted_proxies`."""
    secure_cookies: Literal["auto", "always"] = "auto"
    """`auto`: cookies are for https alone where the request came by it. `always`: sign-in over http is impossible."""
    passwords: bool = True
    """Accounts may sign in by a password. Turn it off where OpenID Connect shall be the only way."""
    session_idle_s: Annotated[float, Meta(ge=60, le=2_592_000)] = 3_600.0
    """A session ends when it was not used for so long; what an open page asks by itself is no use."""
    session_lifetime_s: Annotated[float, Meta(ge=300, le=7_776_000)] = 43_200.0
    """A session ends so long after signing in, however much it is used."""
    link_lifetime_s: Annotated[float, Meta(ge=60, le=2_592_000)] = 259_200.0
    """How long a one-time link opens: the first start's, an invitation, a reset."""
    lockout_s: Fixed[Annotated[float, Meta(ge=10, le=86_400)]] = 900.0
    """Longest pause between attempts for one e-mail address, or from one network, that keep failing; it starts at
    ten seconds, and doubles."""
    oidc: OidcConfig = OidcConfig()
    """Signing in by a provider of identities."""

    def check(self) -> None:
        """Raises ConfigError for settings that contradict each other."""
        if self.public_url and not _is_origin(self.public_url):
            raise ConfigError(
                f"gateway.console.public_url: {self.public_url!r} is no address of a site; write "
                "https://slipstream.example.com, in small letters and without a path",
                param="gateway.console.public_url",
            )
        if self.secure_cookies == "always" and self.public_url.startswith("http://"):
            raise ConfigError(
                "gateway.console.secure_cookies: 'always' and an http:// public_url: sign-in would be impossible; "
                "choose 'auto', or an https:// address",
                param="gateway.console.secure_cookies",
            )
        if self.session_idle_s > self.session_lifetime_s:
            raise ConfigError(
                f"gateway.console.session_idle_s: {self.session_idle_s:g} is more than session_lifetime_s "
                f"({self.session_lifetime_s:g}), which would end every session first",
                param="gateway.console.session_idle_s",
            )
        oidc = self.oidc
        if oidc.issuer and not _is_address(oidc.issuer):
            raise ConfigError(
                f"gateway.console.oidc.issuer: {oidc.issuer!r} is no https:// address; http:// is taken for this "
                "machine alone (127.0.0.1, localhost)",
                param="gateway.console.oidc.issuer",
            )
        if oidc.issuer and not oidc.client_id:
            raise ConfigError(
                "gateway.console.oidc.client_id: it is empty; give the id that the provider assigned to this "
                "deployment",
                param="gateway.console.oidc.client_id",
            )
        if oidc.issuer and "openid" not in oidc.scopes:
            raise ConfigError(
                f"gateway.console.oidc.scopes: {list(oidc.scopes)} lacks 'openid', without which there is no ID token",
                param="gateway.console.oidc.scopes",
            )
        if not self.passwords and not oidc.issuer:
            raise ConfigError(
                "gateway.console.passwords: false, and no oidc.issuer: sign-in would be impossible",
                param="gateway.console.passwords",
            )


def _is_origin(url: str) -> bool:
    parts = urlsplit(url)
    bare = f"{parts.scheme}://{parts.netloc}".lower()  # as browsers send it in `Origin`
    return parts.scheme in ("http", "https") and bool(parts.netloc) and url == bare


def _is_address(url: str) -> bool:
    parts = urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    return bool(parts.netloc) and (parts.scheme == "https" or (parts.scheme == "http" and local))
