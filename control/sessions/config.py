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
    """The role of the members of one group of the identity provider."""

    group: Annotated[str, Meta(min_length=1, max_length=500)]
    """The group's name in the provider's claim."""
    role: Role
    """Role of the group's members."""
    organization: Annotated[str, Meta(min_length=1, max_length=100)] = OPERATOR
    """Id of their organization, or `operator` for the organization that runs the deployment."""


class OidcConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sign-in by OpenID Connect (code flow with PKCE). It is off while `issuer` is empty."""

    issuer: str = ""
    """The provider's URL, exactly as in its tokens' `iss`. Its configuration is read from
    `/.well-known/openid-configuration` below this URL."""
    client_id: str = ""
    """This deployment's client id at the provider."""
    client_secret_env: str = ""
    """Name of the gateway's environment variable that contains the client secret. Empty: a public client."""
    name: Annotated[str, Meta(min_length=1, max_length=60)] = "single sign-on"
    """The provider's name on the button `Sign in with …`."""
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    """Requested scopes. Some providers require `groups` for the claim below."""
    groups_claim: str = "groups"
    """The claim of the ID token or of the user info that lists a person's groups."""
    groups: tuple[GroupRole, ...] = ()
    """Roles by group. The first group that matches decides, and creates the member if missing. Empty: only existing
    members can sign in, identified by their verified e-mail address."""
    timeout_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 10.0
    """Longest wait for one response from the provider."""


class ConsoleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The console, `/console`, and its sessions."""

    enabled: bool = True
    """Serve the console, and let its sessions use the admin API. Admin keys are not affected."""
    public_url: str = ""
    """URL at which browsers reach this deployment, such as `https://slipstream.example.com`. Empty: it follows from
    each request's `Host` header and, for requests from `gateway.connections.trusted_proxies`, from `X-Forwarded-Proto`.
    """
    secure_cookies: Literal["auto", "always"] = "auto"
    """`auto`: cookies of sign-ins over https are sent only over https. `always`: sign-in over http is impossible."""
    passwords: bool = True
    """Allow sign-in with a password. Turn this off if OpenID Connect should be the only way."""
    session_idle_s: Annotated[float, Meta(ge=60, le=2_592_000)] = 3_600.0
    """Time without use after which a session ends. Automatic updates of an open page do not count as use."""
    session_lifetime_s: Annotated[float, Meta(ge=300, le=7_776_000)] = 43_200.0
    """Time after sign-in at which a session ends, regardless of use."""
    link_lifetime_s: Annotated[float, Meta(ge=60, le=2_592_000)] = 259_200.0
    """Time for which a one-time link is valid: the link of the first start, an invitation, or a reset."""
    lockout_s: Fixed[Annotated[float, Meta(ge=10, le=86_400)]] = 900.0
    """Longest pause between failing attempts for one e-mail address or from one network. The first pause is ten
    seconds, and each one doubles."""
    oidc: OidcConfig = OidcConfig()
    """Sign-in through an identity provider."""

    def check(self) -> None:
        """Raises ConfigError for settings that contradict each other."""
        if self.public_url and not _is_origin(self.public_url):
            raise ConfigError(
                f"gateway.console.public_url: {self.public_url!r} is not the address of a site; write it like "
                "https://slipstream.example.com, in lower case and without a path",
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
                f"gateway.console.oidc.issuer: {oidc.issuer!r} is not an https:// address; http:// is allowed only "
                "for this machine (127.0.0.1, localhost)",
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
