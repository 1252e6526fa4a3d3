"""Guards the routes that clients call with their key, in addition to the endpoints that generate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers import BaseRouteHandler

from gateway.auth.bearer import authenticate
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.http.client_connection import SCOPE_KEY
from gateway.wire.key_header import authorization_of

KeyedRequest = Request[KeyRecord, Any, State]
"""Its `user` is the key that the guard found."""
AnyConnection = ASGIConnection[Any, Any, Any, Any]


def keyed(scope: Scope) -> Callable[[AnyConnection, BaseRouteHandler], Awaitable[None]]:
    """A guard that finds the caller's key, and requires the scope, before the body is read."""

    async def require_key(connection: AnyConnection, _: BaseRouteHandler) -> None:
        keyring = connection.app.state.services.keyring
        key = await authenticate(authorization_of(dict(connection.scope["headers"])), keyring)
        connection.scope[SCOPE_KEY].serve(key.caller.organization_id)  # type: ignore[literal-required]
        key.require_scope(scope)
        connection.scope["user"] = key

    return require_key
