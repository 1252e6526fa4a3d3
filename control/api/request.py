"""Checks a request of the admin API before its service runs: its principal and permission, its parameters and its body.

These are Litestar's guards, and a request class that limits the body while it arrives and decodes it strictly.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import msgspec
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers import BaseRouteHandler

from contracts.errors import InvalidField, InvalidJson, NotFound, SessionEnded
from control.api.moments import require_utc
from control.api.operation import Operation, takes_several
from control.api.principal import NOT_SIGNED_IN, Principal
from control.api.services import AdminServices
from gateway.auth.bearer import bearer_secret
from gateway.http.client_connection import SCOPE_KEY
from gateway.http.path_parameter import noun
from gateway.http.request_body import strangers_body, whole_body
from gateway.wire.body_shape import Advice, BodyShape
from gateway.wire.decode import decode, validation_error

BACKGROUND_HEADER = "x-slipstream-background"
ADVICE = Advice("Split it into several requests.", "Split it into several requests.")
AnyConnection = ASGIConnection[Any, Any, Any, Any]


class BoundedRequest(Request[Principal, Any, State]):
    """A request whose body is bounded in bytes and in structure; its `user` is the principal that the guard found."""

    __slots__ = ("whole",)
    whole: bytes

    async def body(self) -> bytes:
        """Read the body. Raises BodyTooLarge as soon as it is too large, InvalidJson if it is missing or invalid."""
        if not hasattr(self, "whole"):
            services: AdminServices = self.app.state.services
            shape = BodyShape(self.route_handler.opt["body_limits"], ADVICE)
            headers = dict(self.scope["headers"])
            if self.scope[SCOPE_KEY].organization_id:  # type: ignore[literal-required]
                self.whole = await whole_body(headers, self.receive, services.admin.max_body_bytes, shape.feed)
            else:
                self.whole = await strangers_body(headers, self.receive, shape.feed)
            if not self.whole and self._body_kind is not None:
                await self.json()
        return self.whole

    async def json(self) -> Any:
        """Decode the body to the struct that the operation takes. Raises a RequestError that names the field."""
        kind, content_type = self._body_kind, self.headers.get("content-type", "")
        if content_type and content_type.partition(";")[0].strip().lower() != "application/json":
            raise InvalidJson(f"The body must be sent as application/json, not as {content_type[:100]!r}.")
        body = decode(_decoder(kind), await self.body(), kind)  # type: ignore[arg-type]
        _refuse_unstorable(msgspec.to_builtins(body, builtin_types=(datetime,)), "")
        return body

    @property
    def _body_kind(self) -> type | None:
        kind: type | None = self.route_handler.opt["operation"].body
        return kind


@cache
def _decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


async def require_permission(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """The first guard, which checks the key or session and the role before the body is read."""
    operation = handler.opt["operation"]
    services: AdminServices = connection.app.state.services
    principal = connection.scope["user"] = await _admitted(connection, operation, services)
    connection.scope[SCOPE_KEY].serve(str(principal.organization_id))  # type: ignore[literal-required]


async def _admitted(connection: AnyConnection, operation: Operation, services: AdminServices) -> Principal:
    """Admit a request by its key, if it has one, and ignore its cookies. Otherwise, admit it by a browser's session,
    which must prove for every change that the console's own page sent the request."""
    if "authorization" not in connection.headers:
        visit = services.browsers.visit(connection.scope)
        if services.browsers.carries_session(visit):
            token = services.browsers.token_of(visit)
            if token is None:
                raise SessionEnded(NOT_SIGNED_IN)
            services.browsers.require_intent(visit, token)
            used = not _unattended(connection)
            return await services.admin.admit_session(operation, token, visit.network, used=used)
    secret = bearer_secret(connection.headers.get("authorization", ""), "sk-slip-admin-...")
    client = connection.scope[SCOPE_KEY]  # type: ignore[literal-required]
    return await services.admin.admit(operation, secret, client.network)


def _unattended(connection: AnyConnection) -> bool:
    """Whether a page sent the request without its user's activity. A page sets a header after some time without input;
    a browser that reopens an event stream cannot set it."""
    return BACKGROUND_HEADER in connection.headers or connection.headers.get("accept") == "text/event-stream"


async def require_known_parameters(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """The second guard, which refuses by name a parameter that is unknown, repeated or not text."""
    operation = handler.opt["operation"]
    kind = operation.query or msgspec.Struct
    for name, text in connection.path_params.items():
        if not _storable(text):
            raise NotFound(f"There is no such {noun(name)}.")
    seen: set[str] = set()
    for name, text in connection.query_params.multi_items():
        if name not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__) or "none"
            raise validation_error(
                f"Object contains unknown field `{name}`",
                kind,
                not_part=f"is not a parameter of this call; parameters: {known}.",
            )
        if not _storable(text):
            raise InvalidField(f"Invalid value for '{name}': it is not text.", param=name)
        if name in seen and not takes_several(kind, name):
            raise InvalidField(f"Invalid value for '{name}': it is given twice. Send it once.", param=name)
        seen.add(name)


def _storable(text: str) -> bool:
    """Whether PostgreSQL's text type can hold it."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _refuse_unstorable(value: object, path: str) -> None:
    """Raises InvalidField for a zero byte, which PostgreSQL cannot store and no pattern excludes from free-form
    objects, and for a time that msgspec's constraints cannot limit."""
    match value:
        case str() if "\0" in value:
            raise InvalidField(f"Invalid value for '{path}': it contains a NUL character. Remove it.", param=path)
        case datetime():
            require_utc(value, path)
        case dict():
            for name, item in value.items():
                _refuse_unstorable(name, path)
                _refuse_unstorable(item, f"{path}.{name}" if path else str(name))
        case list():
            for number, item in enumerate(value):
                _refuse_unstorable(item, f"{path}[{number}]")
        case _:
            return
