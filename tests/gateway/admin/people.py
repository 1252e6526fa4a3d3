"""Principals of every role in three organizations of one deployment, and a client that asks as one of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import aiohttp
import asyncpg
import msgspec

from gateway.auth.keys import ADMIN_PREFIX, mint
from gateway.tenants.roles import Role


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: Any


class Client:
    """Asks the admin API with one key."""

    def __init__(self, session: aiohttp.ClientSession, url: str, secret: str) -> None:
        self._session = session
        self._url = url
        self.secret = secret

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """path: below /admin/v1. headers: with `_` for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.secret:
            sent["authorization"] = f"Bearer {self.secret}"
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            sent["content-type"] = "application/json"
        url = f"{self._url}/admin/v1{path}"
        async with self._session.request(method, url, data=data, headers=sent) as response:
            raw = await response.read()
            answered = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, answered, msgspec.json.decode(raw) if raw else None)

    async def get(self, path: str, **headers: str) -> Any:
        """The body of a successful GET."""
        return await self._body(200, "GET", path, None, **headers)

    async def make(self, path: str, body: object, **headers: str) -> Any:
        """The body of a successful POST."""
        return await self._body(201, "POST", path, body, **headers)

    async def change(self, path: str, body: object) -> Any:
        """The body of a successful PATCH."""
        return await self._body(200, "PATCH", path, body)

    async def _body(self, status: int, method: str, path: str, body: object, **headers: str) -> Any:
        answer = await self.ask(method, path, body, **headers)
        assert answer.status == status, answer
        return answer.body


class People:
    """The operating organization and two tenants, `ours` and `theirs`, with a client for each role in each."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, database: asyncpg.Connection[Any], pepper: bytes
    ) -> None:
        self.session = session
        self.url = url
        self.database = database
        self.pepper = pepper
        self.organizations: dict[str, UUID] = {}
        self._clients: dict[tuple[str, Role], Client] = {}

    async def move_in(self) -> None:
        """Make all of them."""
        for name in ("operator", "ours", "theirs"):
            if name == "operator":
                found = await self.database.fetchval("SELECT id FROM gateway.organizations WHERE operator")
                if found is not None:
                    self.organizations[name] = found
                    continue
            self.organizations[name] = await self.database.fetchval(
                "INSERT INTO gateway.organizations (name, operator) VALUES ($1, $2) RETURNING id",
                f"{name} {uuid4()}",
                name == "operator",
            )

    async def principal(self, organization: str, role: Role) -> UUID:
        """A new member."""
        principal_id: UUID = await self.database.fetchval(
            "INSERT INTO gateway.principals (organization_id, kind, email, name, role)"
            " VALUES ($1, 'member', $2, $3, $4) RETURNING id",
            self.organizations[organization],
            f"{uuid4()}@example.com",
            role.value,
            role.value,
        )
        return principal_id

    async def key_of(self, principal_id: UUID) -> str:
        """A new admin key's secret."""
        minted = mint(self.pepper, ADMIN_PREFIX)
        await self.database.execute(
            "INSERT INTO gateway.admin_keys (principal_id, name, hash, display) VALUES ($1, 'test', $2, $3)",
            principal_id,
            minted.hash,
            minted.display,
        )
        return minted.secret

    async def as_(self, role: Role, organization: str = "ours") -> Client:
        """A client for that role."""
        known = self._clients.get((organization, role))
        if known is None:
            secret = await self.key_of(await self.principal(organization, role))
            known = self._clients[organization, role] = Client(self.session, self.url, secret)
        return known

    async def owner(self) -> Client:
        """The owner of `ours`."""
        return await self.as_(Role.OWNER)

    async def operator(self) -> Client:
        """An owner of the operating organization."""
        return await self.as_(Role.OWNER, "operator")

    def with_secret(self, secret: str) -> Client:
        """A client with another secret."""
        return Client(self.session, self.url, secret)
