"""The services and the requests of the console's own routes."""

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
    """The console of one gateway. It uses the admin API's connections and owns the threads that hash passwords."""

    def __init__(
        self, admin: AdminApi, browsers: Browsers, config: ConsoleConfig, pepper: bytes, provider: Provider | None
    ) -> None:
        """provider: the identity provider; None without one."""
        self.admin = admin
        self.browsers = browsers
        self.config = config
        self.pepper = pepper
        self.provider = provider
        self.passwords = Passwords(pepper)

    def start(self) -> None:
        """Start the threads that hash passwords."""
        self.passwords.start()

    async def stop(self) -> None:
        """Stop the threads and close the provider's connections. Idempotent."""
        self.passwords.stop()
        if self.provider is not None:
            await self.provider.stop()

    @property
    def idle(self) -> timedelta:
        """Time without use after which a session ends."""
        return timedelta(seconds=self.config.session_idle_s)

    @property
    def lifetime(self) -> timedelta:
        """Time after which a session ends in any case."""
        return timedelta(seconds=self.config.session_lifetime_s)


class ConsoleCall:
    """One request to the console."""

    def __init__(self, console: Console, visit: Visit, request_id: str) -> None:
        self.console = console
        self.visit = visit
        self.request_id = request_id
        self.token: SessionToken | None = console.browsers.token_of(visit)
        """The token of the session that the request carried or received."""
        self.cookies: list[Cookie] = []
        """`Set-Cookie` headers of the response."""

    async def work(self, do: Callable[[asyncpg.Connection[Any]], Awaitable[ResultT]]) -> ResultT:
        """Run `do` on a connection. Raises ServiceError while the database is unavailable."""
        admin, network = self.console.admin, self.visit.network
        key = stranger(network) if self.token is None else admin.callers.find(self.token.hash, network)
        return await admin.connected(self.request_id, do, key)

    @property
    def queue_key(self) -> QueueKey:
        """The request's key in the queue for hashing passwords."""
        return self.console.passwords.queue.key_of(self.token, self.visit.network)

    def require_session(self) -> SessionToken:
        """The token of the session that sent the request on purpose. Raises SessionEnded, ForeignPage, CsrfRefused."""
        if self.token is None:
            raise SessionEnded(NOT_SIGNED_IN)
        self.console.browsers.require_intent(self.visit, self.token)
        return self.token

    def keep(self, token: SessionToken) -> None:
        """Have the browser use this session from now on."""
        self.token = token
        self.cookies.append(self.console.browsers.kept(self.visit, token))

    def forget(self) -> None:
        """Have the browser forget its session."""
        self.token = None
        self.cookies.append(self.console.browsers.forgotten(self.visit))
