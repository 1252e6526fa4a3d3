"""Principals of every role in three organizations of one deployment, and a client that asks as one of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import asyncpg
import msgspec

from control.sessions import token
from control.sessions.cookie import NAME
from gateway.auth.keys import ADMIN_PREFIX, mint
from storage.roles import Role


class Credential(StrEnum):
    MEMBER_KEY = "a member's key"
    ACCOUNT_KEY = "a service account's key"
    SESSION = "a session of the console"


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: Any


class Client:
    """Asks the admin API with one key, or with what a browser sends of somebody who is signed in."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, secret: str, sends: dict[str, str] | None = None
    ) -> None:
        """sends: headers of every request, when not the key's."""
        self._session = session
        self._url = url
        self._sends = sends or {}
        self.secret = secret

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """path: below /admin/v1. headers: with `_` for `-`."""
        async with self.opened(method, path, body, **headers) as response:
            raw = await response.read()
            answered = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, answered, msgspec.json.decode(raw) if raw else None)

    @contextlib.asynccontextmanager
    async def opened(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer whose end is not waited for, as of a stream."""
        sent = {**self._sends, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.secret:
            sent["authorization"] = f"Bearer {self.secret}"
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            sent["content-type"] = "application/json"
        url = f"{self._url}/admin/v1{path}"
        async with self._session.request(method, url, data=data, headers=sent) as response:
            yield response

    async def get(self, path: str, **headers: str) -> Any:
        return await self._body(200, "GET", path, None, **headers)

    async def pages(self, path: str) -> list[dict[str, Any]]:
        """The items of all pages of a list."""
        items: list[dict[str, Any]] = []
        page = await self.get(path)
        while True:
            items += page["data"]
            if not page["has_more"]:
                return items
            page = await self.get(f"{path}{'&' if '?' in path else '?'}cursor={page['next_cursor']}")

    async def make(self, path: str, body: object, **headers: str) -> Any:
        return await self._body(201, "POST", path, body, **headers)

    async def change(self, path: str, body: object) -> Any:
        return await self._body(200, "PATCH", path, body)

    async def _body(self, status: int, method: str, path: str, body: object, **headers: str) -> Any:
        answer = await self.ask(method, path, body, **headers)
        assert answer.status == status, answer
        return answer.body


class People:
    """The operating organization, the tenants `ours`, `theirs` and `disabled`, and a client for each role in each."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, database: asyncpg.Connection[Any], pepper: bytes
    ) -> None:
        self.session = session
        self.url = url
        self.database = database
        self.pepper = pepper
        self.organizations: dict[str, UUID] = {}
        self.things: dict[str, dict[str, object]] = {}
        """Of each organization, by the names of paths' parameters, once they were wanted."""
        self._clients: dict[tuple[str, Role, Credential], Client] = {}

    async def move_in(self) -> None:
        for name in ("operator", "ours", "theirs", "disabled"):
            if name == "operator":
                found = await self.database.fetchval("SELECT id FROM gateway.organizations WHERE operator")
                if found is not None:
                    self.organizations[name] = found
                    continue
            self.organizations[name] = await self.database.fetchval(
                "INSERT INTO gateway.organizations (name, operator, disabled_at)"
                " VALUES ($1, $2, CASE WHEN $3 THEN now() END) RETURNING id",
                f"{name} {uuid4()}",
                name == "operator",
                name == "disabled",
            )

    async def move_in_as(self, name: str) -> UUID:
        """A new tenant, known by a name that begins so."""
        self.organizations[name] = made = await self.database.fetchval(
            "INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id", f"{name} {uuid4()}"
        )
        return UUID(str(made))

    async def price(self, model: str, *rates: int) -> None:
        """Since long ago. rates: of input, cached input, cache writes and output."""
        await self.database.execute(
            "INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro,"
            " output_micro) VALUES ($1, '2020-01-01Z', $2, $3, $4, $5)",
            *(model, *rates),
        )

    async def principal(self, organization: str, role: Role, *, member: bool = True) -> UUID:
        principal_id: UUID = await self.database.fetchval(
            "INSERT INTO gateway.principals (organization_id, kind, email, name, role)"
            " VALUES ($1, $2, $3, $4, $5) RETURNING id",
            self.organizations[organization],
            "member" if member else "service_account",
            f"{uuid4()}@example.com" if member else None,
            role.value if member else uuid4().hex,
            role.value,
        )
        return principal_id

    async def key_of(self, principal_id: UUID) -> str:
        return await new_admin_key(self.database, self.pepper, principal_id)

    async def as_(
        self, role: Role, organization: str = "ours", credential: Credential = Credential.MEMBER_KEY
    ) -> Client:
        known = self._clients.get((organization, role, credential))
        if known is None:
            principal_id = await self.principal(organization, role, member=credential != Credential.ACCOUNT_KEY)
            if credential == Credential.SESSION:
                known = Client(self.session, self.url, "", await self.session_of(principal_id))
            else:
                known = self.with_secret(await self.key_of(principal_id))
            self._clients[organization, role, credential] = known
        return known

    async def session_of(self, principal_id: UUID) -> dict[str, str]:
        """What the browser of a member sends who has an account and is signed in, now."""
        minted = token.mint(self.pepper)
        await self.database.execute(
            "WITH account AS (INSERT INTO gateway.console_accounts (principal_id) VALUES ($1) RETURNING id)"
            " INSERT INTO gateway.console_sessions (account_id, token_hash, method, network, user_agent, expires_at)"
            " SELECT id, $2, 'password', '', '', now() + interval '1 hour' FROM account",
            principal_id,
            minted.hash,
        )
        return {"cookie": f"{NAME}={minted.secret}", "x-csrf-token": minted.csrf}

    async def owner(self) -> Client:
        return await self.as_(Role.OWNER)

    async def operator(self) -> Client:
        return await self.as_(Role.OWNER, "operator")

    def with_secret(self, secret: str) -> Client:
        return Client(self.session, self.url, secret)


async def new_admin_key(database: asyncpg.Connection[Any], pepper: bytes, principal_id: UUID) -> str:
    """Its secret."""
    minted = mint(pepper, ADMIN_PREFIX)
    await database.execute(
        "INSERT INTO gateway.admin_keys (principal_id, name, hash, display) VALUES ($1, 'test', $2, $3)",
        principal_id,
        minted.hash,
        minted.display,
    )
    return minted.secret
