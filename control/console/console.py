"""Services and calls of the console's own routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
from litestar.datastructures import Cookie

from contracts.errors import SessionEnded
from control.api.api import AdminApi
from control.api.connection_queue import stranger
from control.api.fair_queue import QueueKey
from control.api.principal import NOT_SIGNED_IN
from control.console.passwords import Passwords
from control.sessions.browsers import Browsers
from control.sessions.config import ConsoleConfig
from control.sessions.site import Visit
from control.sessions.token import SessionToken

if TYPE_CHECKING:
    from control.console.oidc.provider import Provider

ResultT = TypeVar("ResultT")


class Console:
    """One per gateway. Uses the admin API's connections; owns the threads that hash passwords."""

    def __init__(
        self, admin: AdminApi, browsers: Browsers, config: ConsoleConfig, pepper: bytes, provider: Provider | None
    ) -> None:
        """provider: of identities; None: there is none."""
        self.admin = admin
        self.browsers = browsers
        self.config = config
        self.pepper = pepper
        self.provider = provider
        self.passwords = Passwords(pepper)

    def start(self) -> None:
        """Be ready to hash."""
        self.passwords.start()

    async def stop(self) -> None:
        """Idempotent."""
        self.passwords.stop()
        if self.provider is not None:
            await self.provider.stop()

    @property
    def idle(self) -> timedelta:
        """Unused time after which a session has ended."""
        return timedelta(seconds=self.config.session_idle_s)

    @property
    def lifetime(self) -> timedelta:
        """Time after which a session has ended in any case."""
        return timedelta(seconds=self.config.session_lifetime_s)


class ConsoleCall:
    """One request."""

    def __init__(self, console: Console, visit: Visit, request_id: str) -> None:
        self.console = console
        self.visit = visit
        self.request_id = request_id
        self.token: SessionToken | None = console.browsers.token_of(visit)
        """The session's that the request came with, or was given."""
        self.cookies: list[Cookie] = []
        """`Set-Cookie` of the answer."""

    async def work(self, do: Callable[[asyncpg.Connection[Any]], Awaitable[ResultT]]) -> ResultT:
        """Run on a connection. Raises ServiceError while the database is away."""
        admin, network = self.console.admin, self.visit.network
        key = stranger(network) if self.token is None else admin.callers.find(self.token.hash, network)
        return await admin.connected(self.request_id, do, key)

    @property
    def queue_key(self) -> QueueKey:
        """The request's key in the queue for hashing passwords."""
        return self.console.passwords.queue.key_of(self.token, self.visit.network)

    def require_session(self) -> SessionToken:
        """The token of a session that sent the request on purpose. Raises SessionEnded, ForeignPage, CsrfRefused."""
        if self.token is None:
            raise SessionEnded(NOT_SIGNED_IN)
        self.console.browsers.require_intent(self.visit, self.token)
        return self.token

    def keep(self, token: SessionToken) -> None:
        """The browser is to use this session from now on."""
        self.token = token
        self.cookies.append(self.console.browsers.kept(self.visit, token))

    def forget(self) -> None:
        """The browser is to forget its session."""
        self.token = None
        self.cookies.append(self.console.browsers.forgotten(self.visit))
