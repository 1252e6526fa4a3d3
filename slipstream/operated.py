"""Commands that run an operation of the admin API. A command declares its options and how its answer reads.

The operation's own types decode the options, as they decode a request. Each command prints its answer as the API gives
it with `--json`. Modules of the control plane are imported when a command runs.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click
import msgspec

from slipstream.commands.options import deployment_options
from slipstream.listing import json_option, show

if TYPE_CHECKING:
    from control.api.call import AdminCall

Work = Callable[["AdminCall", dict[str, Any]], Awaitable[Any]]
"""Does a command's work. It takes the options and arguments by name."""
MOST_LISTED = 100


class Finder(msgspec.Struct, frozen=True):
    """Finds a value of an operation's path by names that people use."""

    function: str | None
    """In slipstream.tenants; it takes a connection and the options. None: the one option is the value."""
    options: tuple[str, ...]

    async def find(self, call: AdminCall, given: dict[str, Any]) -> Any:
        """The value. Takes its options out of `given`. Raises like the function."""
        values = [given.pop(each) for each in self.options]
        if self.function is None:
            return values[0]
        from slipstream import tenants

        return await getattr(tenants, self.function)(call.connection, *values)


ORGANIZATION = Finder("organization_named", ("organization",))
ADMINISTERED = Finder("administered_organization", ("organization",))
"""The operating organization unless another is named."""


class AdminOperation:
    """One operation: its path's values are found, and the other options become its body or query."""

    def __init__(self, service: str, *path: Finder, **fixed: object) -> None:
        """service: below `control`. fixed: fields of the body or query that the command decides."""
        self._module, _, self._name = service.rpartition(".")
        self._path = path
        self._fixed = fixed

    async def __call__(self, call: AdminCall, given: dict[str, Any]) -> Any:
        """The answer. An option that is not given is left out of the body; `all` alone lifts a restriction."""
        from control.api.operation import operation
        from slipstream.administration import converted

        service = self._service()
        found = [await each.find(call, given) for each in self._path]
        values = {
            name: (None if value == ("all",) else list(value)) if isinstance(value, tuple) else value
            for name, value in {**given, **self._fixed}.items()
            if value not in (None, ())
        }
        described = operation("", service, None)
        kinds: dict[str, Any] = {"body": described.body, "query": described.query}
        taken = {name: converted(values, kind) for name, kind in kinds.items() if kind is not None}
        return await service(call, *found, **taken)

    def url(self) -> str:
        """Its path below /admin/v1."""
        from control.operations import OPERATIONS

        return next(each.path for each in OPERATIONS if each.service is self._service())

    def _service(self) -> Callable[..., Awaitable[Any]]:
        service: Callable[..., Awaitable[Any]] = getattr(importlib.import_module(f"control.{self._module}"), self._name)
        return service


def operated(
    group: click.Group, work: Work, name: str | None = None
) -> Callable[[Callable[[Any], object]], click.Command]:
    """A command of the group that prints the work's answer. The decorated function returns the answer's text."""

    def decorate(told: Callable[[Any], object]) -> click.Command:
        @functools.wraps(told)
        def run(*, as_json: bool, **given: Any) -> None:
            answer = _done(work, given)
            if as_json:
                show(answer if isinstance(answer, list) else [answer], {}, as_json=True)
            else:
                print(told(answer))

        return group.command(name)(deployment_options(json_option(run)))

    return decorate


def listed(
    group: click.Group,
    work: Work,
    columns: Mapping[str, str | Callable[[Any], object]],
    empty: Callable[[str], str] | str = "",
    *,
    name: str = "list",
    more: str = "",
) -> Callable[[Callable[[], None]], click.Command]:
    """A command of the group that prints a list. The decorated function is its help, and runs after the list is
    printed. columns: an attribute or a cell of each item, by the column's head. empty: the line for an empty list, of
    the option's organization. more: the request for the rest of a list, where the work is not one operation."""
    cells = {head: attrgetter(cell) if isinstance(cell, str) else cell for head, cell in columns.items()}

    def decorate(described: Callable[[], None]) -> click.Command:
        @functools.wraps(described)
        def run(*, as_json: bool, **given: Any) -> None:
            nothing = empty(given["organization"]) if callable(empty) else empty
            answer = _done(work, given)
            items, rest = answer if isinstance(answer, list) else answer.data, ""
            if getattr(answer, "has_more", False):
                rest = work.url() if isinstance(work, AdminOperation) else more
            show(items, cells, as_json=as_json, empty=nothing, more=rest)
            described()

        return group.command(name)(deployment_options(json_option(run)))

    return decorate


def _done(work: Work, given: dict[str, Any]) -> Any:
    from slipstream.administration import administer

    return administer(given.pop("deployment"), lambda call: work(call, given))
