"""The identity provider: its description, the address of its sign-in, and the verified claims of its tokens (OpenID
Connect Core 1.0, 3.1; PKCE, RFC 7636).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from contracts.errors import ConfigError
from control.console.oidc.identity import Identity, IdentityRefused, ProviderUnavailable
from control.sessions.config import OidcConfig

DISCOVERY = "/.well-known/openid-configuration"
KNOWN_FOR_S = 3_600.0
"""How long the provider's description and keys are cached; an unknown key is looked up at once."""
FAILED_FOR_S = 5.0
"""Pause after a provider did not answer."""
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Only asymmetric algorithms: with the others, the client secret, which both sides have, would sign."""
LEEWAY_S = 60
LOCAL = ("127.0.0.1", "::1", "localhost")


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's description of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] = msgspec.field(default_factory=lambda: ["client_secret_basic"])


def verified_email(*sources: Mapping[str, Any]) -> str | None:
    """The first verified address: one source's verification does not hold for another's address."""
    for source in sources:
        if isinstance(source.get("email"), str) and source.get("email_verified") in (True, "true"):
            return str(source["email"])
    return None


class Provider:
    """The identity provider for one gateway, which sends it no request before the first sign-in."""

    def __init__(
        self,
        config: OidcConfig,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError if the client's secret is not where the settings name it."""
        self._config = config
        self._secret = environment.get(config.client_secret_env, "") if config.client_secret_env else None
        if self._secret == "":
            raise ConfigError(
                f"gateway.console.oidc.client_secret_env: the gateway's environment has no {config.client_secret_env}; "
                "set it, or leave the setting empty for a public client",
                param="gateway.console.oidc.client_secret_env",
            )
        self._http = httpx.AsyncClient(timeout=config.timeout_s, follow_redirects=False)
        self._clock = clock
        self._reading = asyncio.Lock()
        self._description: Description | None = None
        self._failure: ProviderUnavailable | None = None
        self._failed_at = 0.0
        self._keys: KeySet | None = None
        self._read_at = 0.0

    async def stop(self) -> None:
        """Close the connections. Idempotent."""
        await self._http.aclose()

    async def address(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """The address for the browser's sign-in. verifier: PKCE's, whose digest the address contains. Raises
        ProviderUnavailable."""
        description = await self._described()
        async with self._client(description, redirect_uri) as client:
            url, _ = client.create_authorization_url(
                description.authorization_endpoint, state=state, nonce=nonce, code_verifier=verifier
            )
        return str(url)

    async def identity(self, redirect_uri: str, code: str, nonce: str, verifier: str) -> Identity:
        """The identity of the person with this code. Raises ProviderUnavailable, IdentityRefused."""
        description = await self._described()
        try:
            async with self._client(description, redirect_uri) as client:
                token = await client.fetch_token(description.token_endpoint, code=code, code_verifier=verifier)
        except (OAuthError, ValueError) as error:
            raise IdentityRefused(f"the code is not valid: {error}") from None
        except httpx.HTTPError as error:
            raise ProviderUnavailable(f"{description.token_endpoint}: {error!r}") from None
        if not isinstance(token.get("id_token"), str):
            raise IdentityRefused("there is no ID token in the answer")
        claims = await self._verified(description, token["id_token"], nonce)
        user_info = await self._user_info(description, token.get("access_token"))
        if user_info.get("sub") != claims["sub"]:  # another person's
            user_info = {}
        return self._identity({**user_info, **claims}, verified_email(claims, user_info))

    def _identity(self, claims: Mapping[str, Any], email: str | None) -> Identity:
        name, groups = claims.get("name"), claims.get(self._config.groups_claim)
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return Identity(
            issuer=claims["iss"],
            subject=claims["sub"],
            email=email,
            name=name if isinstance(name, str) and name else None,
            groups=tuple(each for each in listed if isinstance(each, str)),
        )

    async def _verified(self, description: Description, id_token: str, nonce: str) -> dict[str, Any]:
        """The claims of an ID token that is from this provider, for this client, current and of this sign-in."""
        registry = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": description.issuer},
            aud={"essential": True, "value": self._config.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        for fresh in (False, True):  # the keys may have been rotated since they were read
            keys = await self._key_set(description, fresh=fresh)
            try:
                token = jwt.decode(id_token, keys, algorithms=ALGORITHMS)
                registry.validate(token.claims)
            except (JoseError, ValueError) as error:
                refusal = str(error)
                continue
            claims = dict(token.claims)
            several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
            if claims.get("azp", self._config.client_id if not several else None) != self._config.client_id:
                raise IdentityRefused("the ID token was made for another client")
            if not isinstance(claims["sub"], str) or not claims["sub"]:
                raise IdentityRefused("the ID token has no subject")
            return claims
        raise IdentityRefused(f"the ID token is not valid: {refusal}")

    async def _user_info(self, description: Description, access_token: object) -> dict[str, Any]:
        """The provider's additional user info; empty without any."""
        if description.userinfo_endpoint is None or not isinstance(access_token, str):
            return {}
        user_info = await self._get(description.userinfo_endpoint, authorization=f"Bearer {access_token}")
        return user_info if isinstance(user_info, dict) else {}

    async def _described(self) -> Description:
        """The provider's description, read once for all sign-ins that wait for it. Raises ProviderUnavailable."""
        if self._description is not None and self._clock() - self._read_at < KNOWN_FOR_S:
            return self._description
        async with self._reading:
            if self._description is not None and self._clock() - self._read_at < KNOWN_FOR_S:
                return self._description
            if self._failure is not None and self._clock() - self._failed_at < FAILED_FOR_S:
                raise self._failure.with_traceback(None)
            try:
                self._description = await self._ask_description()
            except ProviderUnavailable as error:
                self._failure, self._failed_at = error, self._clock()
                raise
            self._keys, self._read_at = None, self._clock()
            return self._description

    async def _ask_description(self) -> Description:
        url = self._config.issuer.rstrip("/") + DISCOVERY
        try:
            description = msgspec.convert(await self._get(url), Description)
        except msgspec.ValidationError as error:
            raise ProviderUnavailable(f"{url}: {error}") from None
        if description.issuer != self._config.issuer:
            raise ProviderUnavailable(f"{url} is of issuer {description.issuer!r}, not {self._config.issuer!r}")
        for endpoint in (description.authorization_endpoint, description.token_endpoint, description.jwks_uri):
            parts = urlsplit(endpoint)
            if parts.scheme != "https" and parts.hostname not in LOCAL:
                raise ProviderUnavailable(f"{url} names {endpoint!r}, which is not https")
        return description

    async def _key_set(self, description: Description, *, fresh: bool) -> KeySet:
        if self._keys is None or fresh:
            try:
                self._keys = KeySet.import_key_set(await self._get(description.jwks_uri))
            except (JoseError, ValueError, KeyError, TypeError) as error:
                raise ProviderUnavailable(f"{description.jwks_uri}: {error!r}") from None
        return self._keys

    async def _get(self, url: str, **headers: str) -> Any:
        try:
            response = await self._http.get(url, headers={"accept": "application/json", **headers})
            response.raise_for_status()
            return response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ProviderUnavailable(f"{url}: {error!r}") from None

    def _client(self, description: Description, redirect_uri: str) -> AsyncOAuth2Client:
        offered = description.token_endpoint_auth_methods_supported
        method = "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"
        return AsyncOAuth2Client(
            self._config.client_id,
            self._secret,
            token_endpoint_auth_method="none" if self._secret is None else method,
            scope=" ".join(self._config.scopes),
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            timeout=self._config.timeout_s,
        )
