"""A browser that signs in: it keeps cookies, says from which page it asks, and sends the CSRF token back; and people to
sign in, made as the product makes them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import asyncpg
import msgspec

from contracts.desired_state import DesiredState
from control.api.call import AdminCall, NoCounterReader
from control.api.config import AdminConfig
from control.api.fair_queue import QueueKey
from control.api.principal import NO_KEY, Principal
from control.api.transaction import recorded
from control.console.console_links import reset_account
from control.sessions.token import link_hash
from control.slices.startable import NoSlices
from storage.roles import PrincipalKind, Role
from tests.control.api.people import new_admin_key
from tests.control.console.quick_passwords import QuickPasswords
from tests.deployment import free_port

PASSWORD = "four words in a row"
ANYWHERE = QueueKey("tests")
"""Attempts in the queue for a hash."""
PEPPER = b"9f86d081884c7d659a2feaa0c55ad015"
COUNTER = itertools.count(1)


class Answer(msgspec.Struct, frozen=True):
    """What came back; cookies: set by it, with their attributes."""

    status: int
    headers: dict[str, str]
    body: Any
    cookies: dict[str, dict[str, str]]

    @property
    def code(self) -> str:
        code: str = self.body["error"]["code"]
        return code

    @property
    def signed_in(self) -> dict[str, Any]:
        assert self.status == 200, self
        found: dict[str, Any] = self.body["signed_in"]
        return found


class Browser:
    """One browser at one gateway. Each has an address of its own, as the proxy tells."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, secure: bool = False) -> None:
        self.session = session
        self.url = url
        self.secure = secure
        self.address = f"198.51.{next(COUNTER) // 250}.{next(COUNTER) % 250}"
        self.cookies: dict[str, str] = {}
        self.csrf = ""

    @property
    def token(self) -> str:
        return self.cookies[("__Host-" if self.secure else "") + "slipstream-session"]

    @property
    def origin(self) -> str:
        return self.url.replace("http://", "https://" if self.secure else "http://")

    async def ask(self, method: str, path: str, body: object = None, /, **headers: str | None) -> Answer:
        """As a page of ours would. headers: others or, as None, none of the usual ones; `_` for `-`."""
        sent: dict[str, str | None] = {
            "x-forwarded-for": self.address,
            "x-forwarded-proto": "https" if self.secure else "http",
            "cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()) or None,
        }
        if method != "GET":
            sent |= {"origin": self.origin, "sec-fetch-site": "same-origin", "x-csrf-token": self.csrf or None}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            sent.setdefault("content-type", "application/json")
        given = {name: value for name, value in sent.items() if value is not None}
        async with self.session.request(
            method, self.url + path, data=data, headers=given, allow_redirects=False
        ) as response:
            raw = await response.read()
            answer = Answer(
                response.status,
                {name.lower(): value for name, value in response.headers.items()},
                msgspec.json.decode(raw) if raw and "json" in response.headers.get("content-type", "") else raw,
                _set(response.headers.getall("set-cookie", [])),
            )
        for name, cookie in answer.cookies.items():
            if cookie["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = cookie["value"]
        session = answer.body.get("session", answer.body) if isinstance(answer.body, dict) else {}
        if isinstance(session, dict) and "signed_in" in session:
            self.csrf = session["signed_in"]["csrf_token"] if session["signed_in"] else ""
        return answer

    async def sign_in(self, email: str, password: str = PASSWORD, **more: object) -> Answer:
        return await self.ask("POST", "/console/api/session", {"email": email, "password": password, **more})

    def at(self, url: str) -> Browser:
        """The same browser, at another instance."""
        other = Browser(self.session, url, secure=self.secure)
        other.cookies, other.csrf, other.address = self.cookies, self.csrf, self.address
        return other


class Town:
    """The operating organization and two tenants, `ours` and `theirs`."""

    def __init__(self, database: asyncpg.Connection[Any]) -> None:
        self.url = ""
        """Of the gateway, once there is one."""
        self.pepper = PEPPER
        self.provider_port = free_port()
        self.database = database
        self.organizations: dict[str, UUID] = {}
        self.passwords = QuickPasswords(self.pepper)
        self._hash = ""

    async def prepare(self) -> None:
        """Before the first account."""
        self.passwords = QuickPasswords(self.pepper)
        self.passwords.start()
        self._hash = await self.passwords.hash(PASSWORD, ANYWHERE)

    async def found(self) -> None:
        await self.prepare()
        for name in ("operator", "ours", "theirs"):
            self.organizations[name] = await self.database.fetchval(
                "INSERT INTO gateway.organizations (name, operator) VALUES ($1, $2) RETURNING id",
                name,
                name == "operator",
            )

    async def member(self, role: Role = Role.OWNER, organization: str = "ours", email: str = "") -> tuple[UUID, str]:
        """A new member's id and e-mail address."""
        email = email or f"{uuid4().hex}@example.com"
        member_id: UUID = await self.database.fetchval(
            "INSERT INTO gateway.principals (organization_id, kind, email, name, role)"
            " VALUES ($1, 'member', $2, $3, $4) RETURNING id",
            self.organizations[organization],
            email,
            role.value,
            role.value,
        )
        return member_id, email

    async def account(self, role: Role = Role.OWNER, organization: str = "ours", email: str = "") -> str:
        """The e-mail address of a new member with an account, whose password is PASSWORD."""
        member_id, email = await self.member(role, organization, email)
        await self.database.execute(
            "INSERT INTO gateway.console_accounts (principal_id, password_hash) VALUES ($1, $2)", member_id, self._hash
        )
        return email

    async def key_of(self, member_id: UUID) -> str:
        return await new_admin_key(self.database, self.pepper, member_id)

    async def link(self, kind: str, member_id: UUID | None, *, lives: str = "1 hour") -> str:
        """The token of a new one-time link."""
        token = uuid4().hex
        await self.database.execute(
            "INSERT INTO gateway.console_links (hash, kind, principal_id, expires_at)"
            " VALUES ($1, $2, $3, now() + $4::text::interval)",
            link_hash(self.pepper, token),
            kind,
            member_id,
            lives,
        )
        return token

    async def reset(self, email: str, *, totp: bool = False) -> str:
        """The token of the link that `slipstream console accounts reset` prints."""
        shell = Principal(
            id=NO_KEY,
            key_id=NO_KEY,
            organization_id=NO_KEY,
            kind=PrincipalKind.SERVICE_ACCOUNT,
            name="shell",
            email=None,
            role=Role.OWNER,
            operator=True,
        )
        member_id = await self.database.fetchval("SELECT id FROM gateway.principals WHERE email = $1", email)
        fleet, command = DesiredState(0), "slipstream console accounts reset"
        call = AdminCall(
            self.database, shell, command, self.pepper, fleet, AdminConfig(), NoCounterReader(), NoSlices()
        )
        async with recorded(call, shell.actor(command)):
            return (await reset_account(call, member_id, totp=totp)).url.partition("?token=")[2]

    @contextlib.asynccontextmanager
    async def browser(self, *, secure: bool = False) -> AsyncIterator[Browser]:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            yield Browser(session, self.url, secure=secure)

    @contextlib.asynccontextmanager
    async def signed_in(self, role: Role = Role.OWNER, organization: str = "ours") -> AsyncIterator[Browser]:
        email = await self.account(role, organization)
        async with self.browser() as browser:
            assert (await browser.sign_in(email)).status == 200
            yield browser


def _set(headers: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for header in headers:
        cookie: SimpleCookie = SimpleCookie(header)
        for name, morsel in cookie.items():
            attributes = {key: str(value) for key, value in morsel.items() if value}
            found[name] = {"value": morsel.value, "max-age": "", **attributes}
    return found
