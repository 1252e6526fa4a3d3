"""One endpoint of the admin API as a value: what it does, what it takes and gives, and who may.

The HTTP routes, the OpenAPI document, the page of roles and the tests of permissions all read these values, so none of
them can say something else than the others. The pattern of a resource file:

    class NewThing(Body): ...
    class Thing(msgspec.Struct, frozen=True, kw_only=True): ...

    @endpoint("POST", "/projects/{project_id}/things", Permission.PROJECTS_WRITE)
    async def create_thing(call: AdminCall, project_id: UUID, body: NewThing) -> Thing:
        \"\"\"Make a thing.\"\"\"
        organization_id = await call.organization_of_project(project_id)
        thing = record_of(Thing, await call.connection.fetchrow(INSERT, project_id, body.name))
        call.audit("thing.create", thing.id, organization_id=organization_id, after=thing)
        return thing

    ENDPOINTS = (create_thing, ...)

and a line in gateway/admin/endpoints.py. Path parameters are UUIDs or text, `body` is a `Body`, `query` a `Query`; a
list returns a `Page`. The handler runs inside a transaction, raises contracts' errors, and finds only what `call.scope`
lets it see.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

import msgspec

from gateway.tenants.roles import Permission

Handler = Callable[..., Awaitable[Any]]
_PARAMETER = re.compile(r"{(\w+)}")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Made by `endpoint`."""

    method: str
    path: str
    """Below /admin/v1, with `{name}` for what varies."""
    permission: Permission | None
    """None: any admin key."""
    deployment: bool
    """Concerns the deployment: only for principals of the operating organization."""
    handler: Handler
    parameters: dict[str, type]
    """Path parameters and their types, in order."""
    body: type | None
    query: type | None
    returns: Any
    status: int
    summary: str
    description: str

    @property
    def name(self) -> str:
        """The handler's name; OpenAPI's operation id."""
        return self.handler.__name__

    @property
    def module(self) -> str:
        """The resource file it stands in, without folders; OpenAPI's tag."""
        return self.handler.__module__.rpartition(".")[2]


def endpoint(
    method: str,
    path: str,
    permission: Permission | None,
    *,
    deployment: bool = False,
    status: int = 0,
) -> Callable[[Handler], Endpoint]:
    """Declare a handler. status: 201 for a POST and 200 for the rest, unless given."""

    def declare(handler: Handler) -> Endpoint:
        hints = get_type_hints(handler)
        names = _PARAMETER.findall(path)
        summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
        return Endpoint(
            method=method,
            path=path,
            permission=permission,
            deployment=deployment,
            handler=handler,
            parameters={name: hints[name] for name in names},
            body=hints.get("body"),
            query=hints.get("query"),
            returns=hints["return"],
            status=status or (201 if method == "POST" else 200),
            summary=summary.replace("\n", " "),
            description=description,
        )

    return declare
