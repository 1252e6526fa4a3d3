"""Generates the reference pages of the admin API from its operations: roles with their permissions, and endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, get_args, get_origin

import msgspec

from control.api.events.route import EVENTS, EventsQuery
from control.api.events.topics import OF_TENANTS, Topic
from control.api.events.topics import PERMISSIONS as TOPIC_PERMISSIONS
from control.api.operation import Operation
from control.moved_paths import MOVED
from control.operations import OPERATIONS, PREFIX
from storage.roles import PERMISSIONS, Permission, Role

ROLES = """# Roles of the admin API

A role applies in the organization of its member or service account. A principal of the operating organization
has its role's permissions in every organization. Endpoints marked *deployment* require such a principal, as do changes
of an organization's own limits and priorities. No principal can grant, change or revoke a role with more permissions
than its own, or create an admin key for a member with such a role.

## Permissions

"""
ENDPOINT_HEAD = """
## Endpoints

"""
API = """# The admin API

The paths are below `/admin/v1`. Requests need an admin key (`Authorization: Bearer sk-slip-admin-…`) or a
[session of the console](../guides/console.md#sessions). `/admin/v1/openapi.json` has the same content as OpenAPI,
[roles](admin-roles.md) lists the required permissions, and [customers](../guides/customers.md) is the guide.

Bodies are JSON. A request with an unknown field is refused, and the error names the field. Errors have OpenAI's body
([errors](errors.md)). Objects of other organizations return 404. Lists are paginated, newest first unless an endpoint
states otherwise. `limit` is the size of a page (each endpoint has its maximum), and `cursor` is the `next_cursor` of
the previous page. A POST with an `Idempotency-Key` takes effect once: for 24 hours, the same key and body return the
same response (`idempotent-replayed: true`). The same key with another body, or while the first request is running,
returns 409.

Responses about the fleet (models, aliases, pools, fleet) have its version as `ETag`. A change of the fleet with
`If-Match` is refused with 412 if the fleet is no longer at that version. With `?dry_run=true`, the response shows the
differences, and nothing changes ([guide](../guides/fleet.md)).
"""
FORMER = """
## Former paths

Former paths still work. Their responses have the headers `Deprecation` and `Link`.

| former | present |
|---|---|
"""


def roles_page() -> str:
    """The page with the tables role × permission and role × operation."""
    names = [role.value for role in Role]
    lines = [ROLES, f"| permission | {' | '.join(names)} |\n|---|{'---|' * len(names)}\n"]
    for permission in Permission:
        marks = ["yes" if permission in PERMISSIONS[role] else "–" for role in Role]
        lines.append(f"| `{permission.value}` | {' | '.join(marks)} |\n")
    lines.append(ENDPOINT_HEAD)
    lines.append(f"| endpoint | permission | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}\n")
    for operation in OPERATIONS:
        place = f"{operation.method} {operation.path}"
        lines.append(_row(place, operation.permission, operator_only=operation.operator_only))
    for topic in Topic:
        place = f"{EVENTS.method} {EVENTS.path}?topics={topic.value}"
        lines.append(_row(place, TOPIC_PERMISSIONS[topic], operator_only=topic not in OF_TENANTS))
    return "".join(lines)


def _row(place: str, permission: Permission | None, *, operator_only: bool) -> str:
    """A table row: an endpoint, the permission that it needs, and the roles that have it."""
    needed = f"`{permission.value}`" if permission else "any"
    needed += ", *deployment*" if operator_only else ""
    marks = ["yes" if permission is None or permission in PERMISSIONS[role] else "–" for role in Role]
    return f"| `{place}` | {needed} | {' | '.join(marks)} |\n"


def api_page() -> str:
    """The page with the parameters and the response of every operation."""
    parts = [API]
    for module, operations in groupby(OPERATIONS, key=lambda operation: operation.module):
        parts.append(f"\n## {module.replace('_', ' ').capitalize()}\n")
        for operation in operations:
            parts += _described(operation)
    parts.append(_events())
    parts += [FORMER, *(f"| `{PREFIX}{old}` | `{PREFIX}{new}` |\n" for old, new in MOVED.items())]
    return "".join(parts)


def _events() -> str:
    """The section on the event stream, which is not an operation."""
    topics = ", ".join(f"`{topic.value}` (`{TOPIC_PERMISSIONS[topic].value}`)" for topic in Topic)
    query = ", ".join(_field(field) for field in msgspec.structs.fields(EventsQuery))
    return (
        f"\n## Events\n\n### `{EVENTS.method} {PREFIX}{EVENTS.path}`\n\n{EVENTS.summary}\n\n{EVENTS.description}\n"
        f"\nRequires the permission of each topic: {topics}. Returns 200 with `text/event-stream`.\n\nQuery: {query}.\n"
    )


def _described(operation: Operation) -> Iterator[str]:
    yield f"\n### `{operation.method} {PREFIX}{operation.path}`\n\n{operation.summary}"
    yield f"\n\n{operation.description}\n" if operation.description else "\n"
    needed = f"`{operation.permission.value}`" if operation.permission else "any admin key or session"
    yield f"\nRequires {needed}{', in the operating organization' if operation.operator_only else ''}."
    yield f" Returns {operation.status} with {_name(operation.returns)}.\n"
    for title, kind in (("Query", operation.query), ("Body", operation.body)):
        if kind is not None:
            fields = ", ".join(_field(field) for field in msgspec.structs.fields(kind))
            yield f"\n{title}: {fields}.\n"


def _field(field: msgspec.structs.FieldInfo) -> str:
    text = f"`{field.encode_name}`"
    if field.required:
        return f"{text} (required)"
    if field.encode_name == "limit":
        meta = msgspec.inspect.type_info(field.type)
        if isinstance(meta, msgspec.inspect.IntType) and meta.le is not None:
            return f"{text} (default {field.default}, at most {meta.le:,})"
    if field.default in (None, msgspec.UNSET, msgspec.NODEFAULT):
        return text
    return f"{text} (default {msgspec.json.encode(field.default).decode()})"


def _name(kind: Any) -> str:
    arguments = get_args(kind)
    if arguments:
        return f"a page of {_name(arguments[0])}" if get_origin(kind) else str(kind)
    return f"`{getattr(kind, '__name__', kind)}`"
