"""Commands that run an operation of the admin API. A command declares its options and the text of its answer.

The operation's own types decode the options, as they decode a request. With `--json` a command prints the API's answer.
Modules of the control plane are imported when a command runs.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from slipstream.commands.options import deployment_options
from slipstream.listing import json_option, show

if TYPE_CHECKING:
    from control.api.call import AdminCall

Work = Callable[["AdminCall", dict[str, Any]], Awaitable[Any]]
"""Does a command's work. It takes the options and arguments by name, and returns the answer, or it with notes."""
MAX_LISTED = 100


class Noted(NamedTuple):
    """An answer, and sentences for stderr."""

    answer: Any
    notes: Iterable[str]


class PathValue(msgspec.Struct, frozen=True):
    """A value of an operation's path, from options."""

    found_by: str | None
    """A function of slipstream.tenants that takes a connection and the options. None: the one option is the value."""
    options: tuple[str, ...]

    async def find(self, call: AdminCall, given: dict[str, Any]) -> Any:
        """The value. Removes its options from `given`. Raises like the function."""
        values = [given.pop(each) for each in self.options]
        if self.found_by is None:
            return values[0]
        from slipstream import tenants

        return await getattr(tenants, self.found_by)(call.connection, *values)


ORGANIZATION = PathValue("organization_named", ("organization",))
ADMINISTERED = PathValue("administered_organization", ("organization",))
"""The operating organization unless another is named."""


class AdminOperation:
    """One operation: its path's values are found, and the other options become its body or query."""

    def __init__(self, service: str, *path: PathValue, **fixed: object) -> None:
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
            answer, notes = _done(work, given)
            _note(notes)
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
    """A command of the group that prints a list. The decorated function's docstring is its help. columns: an attribute
    or a cell of each item, by the column's head. empty: the line for an empty list, of the option's organization. more:
    the request for the rest of a list, where the work is not one operation."""
    cells = {head: attrgetter(cell) if isinstance(cell, str) else cell for head, cell in columns.items()}

    def decorate(described: Callable[[], None]) -> click.Command:
        @functools.wraps(described)
        def run(*, as_json: bool, **given: Any) -> None:
            nothing = empty(given["organization"]) if callable(empty) else empty
            answer, notes = _done(work, given)
            items, rest = answer if isinstance(answer, list) else answer.data, ""
            if getattr(answer, "has_more", False):
                rest = work.url() if isinstance(work, AdminOperation) else more
            show(items, cells, as_json=as_json, empty=nothing, more=rest)
            _note(notes)

        return group.command(name)(deployment_options(json_option(run)))

    return decorate


def _done(work: Work, given: dict[str, Any]) -> Noted:
    from slipstream.administration import administer

    answer = administer(given.pop("deployment"), lambda call: work(call, given))
    return answer if isinstance(answer, Noted) else Noted(answer, ())


def _note(notes: Iterable[str]) -> None:
    sys.stdout.flush()  # a list stays before its notes where both go to one file
    for each in notes:
        click.echo(each, err=True)
