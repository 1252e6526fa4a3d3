"""Commands that run an operation of the admin API. A command declares its options and the text of its answer.

The operation's own types decode the options, like a request. With `--json`, a command prints the API's answer. Modules
of the control plane are imported when a command runs.
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
"""Does a command's work. It takes the options and arguments by name, and returns the answer, or a Noted."""
MAX_LISTED = 100


class Noted(NamedTuple):
    """An answer with sentences for stderr."""

    answer: Any
    notes: Iterable[str]


class PathValue(msgspec.Struct, frozen=True):
    """A value of an operation's path, from options."""

    found_by: str | None
    """A function of slipstream.tenants that takes a connection and the options; None if the one option is the value."""
    options: tuple[str, ...]

    async def find(self, call: AdminCall, options: dict[str, Any]) -> Any:
        """The value; removes its own options from `options`. Raises the function's errors."""
        values = [options.pop(each) for each in self.options]
        if self.found_by is None:
            return values[0]
        from slipstream import tenants

        return await getattr(tenants, self.found_by)(call.connection, *values)


ORGANIZATION = PathValue("organization_named", ("organization",))
ADMINISTERED = PathValue("administered_organization", ("organization",))
"""The operating organization, unless the option names another."""


class AdminOperation:
    """One operation. It resolves the path's values; the other options become the body or query."""

    def __init__(self, service: str, *path: PathValue, **fixed: object) -> None:
        """service: a function's path below `control`. fixed: fields of the body or query that the command sets."""
        self._module, _, self._name = service.rpartition(".")
        self._path = path
        self._fixed = fixed

    async def __call__(self, call: AdminCall, options: dict[str, Any]) -> Any:
        """The answer. An omitted option is not in the body; the single value `all` removes a restriction."""
        from control.api.operation import operation
        from slipstream.administration import converted

        service = self._service()
        found = [await each.find(call, options) for each in self._path]
        values = {
            name: (None if value == ("all",) else list(value)) if isinstance(value, tuple) else value
            for name, value in {**options, **self._fixed}.items()
            if value not in (None, ())
        }
        described = operation("", service, None)
        kinds: dict[str, Any] = {"body": described.body, "query": described.query}
        decoded = {name: converted(values, kind) for name, kind in kinds.items() if kind is not None}
        return await service(call, *found, **decoded)

    def url(self) -> str:
        """The operation's path below /admin/v1."""
        from control.operations import OPERATIONS

        return next(each.path for each in OPERATIONS if each.service is self._service())

    def _service(self) -> Callable[..., Awaitable[Any]]:
        service: Callable[..., Awaitable[Any]] = getattr(importlib.import_module(f"control.{self._module}"), self._name)
        return service


def operated(
    group: click.Group, work: Work, name: str | None = None
) -> Callable[[Callable[[Any], object]], click.Command]:
    """A command of the group that prints the work's answer. The decorated function returns the answer's text."""

    def decorate(text_of: Callable[[Any], object]) -> click.Command:
        @functools.wraps(text_of)
        def run(*, as_json: bool, **options: Any) -> None:
            answer, notes = _done(work, options)
            _note(notes)
            if as_json:
                show(answer if isinstance(answer, list) else [answer], {}, as_json=True)
            else:
                print(text_of(answer))

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
    or a cell of each item, by the column's head. empty: the line for an empty list, or a function of the organization's
    name. more: the path of the request for the rest of a list, if the work is not one operation."""
    cells = {head: attrgetter(cell) if isinstance(cell, str) else cell for head, cell in columns.items()}

    def decorate(described: Callable[[], None]) -> click.Command:
        @functools.wraps(described)
        def run(*, as_json: bool, **options: Any) -> None:
            empty_line = empty(options["organization"]) if callable(empty) else empty
            answer, notes = _done(work, options)
            items, rest = answer if isinstance(answer, list) else answer.data, ""
            if getattr(answer, "has_more", False):
                rest = work.url() if isinstance(work, AdminOperation) else more
            show(items, cells, as_json=as_json, empty=empty_line, more=rest)
            _note(notes)

        return group.command(name)(deployment_options(json_option(run)))

    return decorate


def _done(work: Work, options: dict[str, Any]) -> Noted:
    from slipstream.administration import administer

    answer = administer(options.pop("deployment"), lambda call: work(call, options))
    return answer if isinstance(answer, Noted) else Noted(answer, ())


def _note(notes: Iterable[str]) -> None:
    sys.stdout.flush()  # a list stays before its notes if both go to one file
    for each in notes:
        click.echo(each, err=True)
