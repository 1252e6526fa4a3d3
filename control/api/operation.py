"""A service function as an operation of the admin API: its method, path and permission, as a value.

A service takes the call, the path's parameters in their order, then `body` (a `Body`) or `query` (a `Query`) if it has
one; a list returns a `Page`. It runs in a transaction, raises contracts' errors, and finds only what `call.sees`:

    THINGS = Resource("thing", Thing, things, projects)

    async def create_thing(call: AdminCall, project_id: UUID, body: NewThing) -> Thing:
        \"\"\"Make a thing.\"\"\"
        await call.organization_of_project(project_id)
        return await THINGS.create(call, project_id=project_id, **THINGS.values_of(body))

A line in `control/operations.py` gives it a path and a permission. The command line calls the same function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, get_type_hints

import msgspec

from contracts.errors import InvalidField
from control.api.call import AdminCall
from control.api.moments import require_utc
from gateway.wire.decode import validation_error
from storage.roles import Permission

Service = Callable[..., Awaitable[Any]]
IN_QUERY = "query_"
"""Prefix of an argument that is a query parameter: Litestar reserves `state` and other names."""
PARAMETER = re.compile(r"{(\w+)}")
WITH_SLASHES = frozenset({"model_name", "alias", "session_name"})
"""Path parameters that may contain slashes, like `Qwen/Qwen3-8B`. Each takes the rest of its path."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation, as a value for the guard, the OpenAPI document, the reference pages and the permission tests."""

    name: str
    """OpenAPI's operation id."""
    method: str
    path: str
    """The path below /admin/v1, with `{name}` for parameters."""
    permission: Permission | None
    """None if any admin key may call it."""
    operator_only: bool
    """Whether it concerns the deployment, so that only the operating organization may call it."""
    versioned: bool
    """Whether it changes the fleet. It then takes If-Match, and returns the version as ETag, like a GET."""
    expensive: bool
    """Whether it adds up the rows of a period. It may take PostgreSQL seconds, so few run at once (read_places.py)."""
    remote: bool
    """Whether it queries another server. It then runs without a database connection, and its service gets no call."""
    service: Service
    positional: tuple[type, ...]
    """Types of the service's parameters after the call; the first are the path's, in order."""
    body: type | None
    query: type[msgspec.Struct] | None
    returns: Any
    status: int
    summary: str
    description: str

    @property
    def removes(self) -> bool:
        """Whether it removes an object, such as a key, a member or a limit."""
        return self.method == "DELETE" or self.name.startswith("revoke_")

    @property
    def parameters(self) -> dict[str, type]:
        """Path parameters and their types, in order."""
        return dict(zip(PARAMETER.findall(self.path), self.positional, strict=False))

    @property
    def module(self) -> str:
        """The service's module, without folders. It is OpenAPI's tag."""
        return self.service.__module__.rpartition(".")[2]

    async def run(self, call: AdminCall | None, arguments: dict[str, Any]) -> Any:
        """Call the service. call: None for a remote one. arguments: by the parameter names of `_signature`."""
        path = [arguments[name].lstrip("/") if name in WITH_SLASHES else arguments[name] for name in self.parameters]
        named: dict[str, Any] = {}
        if self.body is not None:
            named["body"] = arguments["data"]
        if self.query is not None:
            named["query"] = query_of(self.query, arguments)
        return await self.service(call, *path, **named)


def operation(
    method: str,
    service: Service,
    permission: Permission | None,
    below: str = "",
    *,
    operator_only: bool = False,
    versioned: bool = False,
    expensive: bool = False,
    remote: bool = False,
    status: int = 200,
) -> Operation:
    """Make an operation from a service. below: its path below the controller's."""
    hints = get_type_hints(service, include_extras=True)
    summary, _, description = inspect.cleandoc(service.__doc__ or "").partition("\n\n")
    return Operation(
        name=service.__name__,
        method=method,
        path=below,
        permission=permission,
        operator_only=operator_only,
        versioned=versioned,
        expensive=expensive,
        remote=remote,
        service=service,
        positional=tuple(hints[name] for name in list(inspect.signature(service).parameters)[1:]),
        body=hints.get("body"),
        query=hints.get("query"),
        returns=hints["return"],
        status=status,
        summary=summary.replace("\n", " "),
        description=description,
    )


get = partial(operation, "GET")
report = partial(operation, "GET", expensive=True)
ask = partial(operation, "GET", remote=True)
post = partial(operation, "POST", status=201)
put = partial(operation, "PUT")
patch = partial(operation, "PATCH")
delete = partial(operation, "DELETE")


def query_of(kind: type[msgspec.Struct], arguments: dict[str, Any]) -> Any:
    """Convert the texts of the query's parameters to its struct. Raises InvalidField."""
    values = {name: arguments[IN_QUERY + name] for name in kind.__struct_fields__}
    present = {name: value for name, value in values.items() if value not in (None, [])}
    try:
        query = msgspec.convert(present, kind, strict=False)
    except msgspec.ValidationError as error:
        raise validation_error(str(error), kind) from None
    for name, text in present.items():
        value = getattr(query, name)
        if value is None:  # msgspec converts the text `null` to None
            raise InvalidField(f"Invalid value for '{name}': null is not allowed; leave the parameter out.", param=name)
        if isinstance(value, datetime) and ":" not in text:  # msgspec takes numbers as seconds since 1970
            raise InvalidField(
                f"Invalid value for '{name}': expected a timestamp such as 2026-01-31T00:00:00Z, got {text!r}.",
                param=name,
            )
        if isinstance(value, datetime):
            require_utc(value, name)
    return query


def takes_several(kind: type[msgspec.Struct], name: str) -> bool:
    """Whether a parameter may occur several times."""
    return any("list[" in str(vars(base).get("__annotations__", {}).get(name, "")) for base in kind.__mro__)
