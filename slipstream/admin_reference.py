"""The pages about the admin API, from the operations themselves: who may do what, and what there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, get_args, get_origin

import msgspec

from gateway.admin.controllers import OPERATIONS, PREFIX
from gateway.admin.operation import Operation
from gateway.tenants.roles import PERMISSIONS, Permission, Role

ROLES = """# Roles of the admin API

A role holds in the organization its member or service account belongs to. A principal of the operating organization
has its role's permissions in every organization; endpoints marked *deployment* are for those alone. Nobody can give,
change or take a role that may do more than their own, nor make an admin key for somebody who has one.

## Permissions

"""
ENDPOINT_HEAD = """
## Endpoints

"""
API = """# The admin API

Below `/admin/v1`, with an admin key: `Authorization: Bearer sk-slip-admin-…`. The same as OpenAPI:
`/admin/v1/openapi.json`. Who may call what: [roles](admin-roles.md). How to use it:
[customers](../guides/customers.md).

Bodies are JSON; an unknown field is refused by name. Errors have OpenAI's body ([errors](errors.md)); what belongs to
another organization is a 404. Lists are pages, newest first: `limit` (at most 100) and `cursor`, which is the page's
`next_cursor`. A POST with an `Idempotency-Key` is done once: for 24 hours the same key and body get the same answer
(`idempotent-replayed: true`), another body 409, and so does a second request while the first is running.

Answers about the fleet (models, aliases, pools, fleet) carry its version as `ETag`. A change of it with `If-Match` is
refused with 412 when the fleet is at another version by then; with `?dry_run=true` it says what would differ and does
nothing ([how to](../guides/fleet.md)).
"""


def roles_page() -> str:
    """Role × permission, and role × operation."""
    names = [role.value for role in Role]
    lines = [ROLES, f"| permission | {' | '.join(names)} |\n|---|{'---|' * len(names)}\n"]
    for permission in Permission:
        marks = ["yes" if permission in PERMISSIONS[role] else "–" for role in Role]
        lines.append(f"| `{permission.value}` | {' | '.join(marks)} |\n")
    lines.append(ENDPOINT_HEAD)
    lines.append(f"| endpoint | permission | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}\n")
    for operation in OPERATIONS:
        needed = f"`{operation.permission.value}`" if operation.permission else "any"
        needed += ", *deployment*" if operation.operator_only else ""
        marks = [
            "yes" if operation.permission is None or operation.permission in PERMISSIONS[role] else "–" for role in Role
        ]
        lines.append(f"| `{operation.method} {operation.path}` | {needed} | {' | '.join(marks)} |\n")
    return "".join(lines)


def api_page() -> str:
    """Every operation with what it takes and gives."""
    parts = [API]
    for module, operations in groupby(OPERATIONS, key=lambda operation: operation.module):
        parts.append(f"\n## {module.replace('_', ' ').capitalize()}\n")
        for operation in operations:
            parts += _described(operation)
    return "".join(parts)


def _described(operation: Operation) -> Iterator[str]:
    yield f"\n### `{operation.method} {PREFIX}{operation.path}`\n\n{operation.summary}"
    yield f"\n\n{operation.description}\n" if operation.description else "\n"
    needed = f"`{operation.permission.value}`" if operation.permission else "any admin key"
    yield f"\nNeeds {needed}{', in the operating organization' if operation.operator_only else ''}."
    yield f" Answers {operation.status} with {_name(operation.returns)}.\n"
    for title, kind in (("Query", operation.query), ("Body", operation.body)):
        if kind is not None:
            fields = ", ".join(_field(field) for field in msgspec.structs.fields(kind))
            yield f"\n{title}: {fields}.\n"


def _field(field: msgspec.structs.FieldInfo) -> str:
    text = f"`{field.encode_name}`"
    if field.required:
        return f"{text} (required)"
    if field.default in (None, msgspec.UNSET, msgspec.NODEFAULT):
        return text
    return f"{text} (default {msgspec.json.encode(field.default).decode()})"


def _name(kind: Any) -> str:
    arguments = get_args(kind)
    if arguments:
        return f"a page of {_name(arguments[0])}" if get_origin(kind) else str(kind)
    return f"`{getattr(kind, '__name__', kind)}`"
