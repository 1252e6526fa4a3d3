"""Former paths of the admin API. The control plane serves requests for them at their current paths.

Limits and priorities once had a set of paths for each level.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from control.operations import OPERATIONS, PREFIX
from gateway.limits.levels import Level

SINCE = b"@1795824000"
"""2026-11-28, in RFC 9745's format."""
MOVED: Mapping[str, str] = MappingProxyType({
    each.path.replace(f"/{rules}/{{level}}/{{subject_id}}", f"/{level}s/{{{level}_id}}/{rules}"): each.path
    for rules in ("limits", "priorities")
    for level in Level
    for each in OPERATIONS
    if each.path.startswith(f"/{rules}/{{level}}")
})  # fmt: skip
"""The current path of each former one, both below /admin/v1."""
_FORMER = re.compile(
    f"{PREFIX}/({'|'.join(Level)})s/([^/]+)/(limits|priorities)"
    "(?!/(?:within|preview)/?$)(/.*)?"  # an organization's reports of its limits did not move
)


def present(path: str) -> str | None:
    """The current path, if this is a former one."""
    found = _FORMER.fullmatch(path)
    return f"{PREFIX}/{found[3]}/{found[1]}/{found[2]}{found[4] or ''}" if found else None


def announcing(send: Any, path: str) -> Callable[[Any], Any]:
    """A `send` that adds headers with the current path (RFC 9745, RFC 5829)."""
    headers = [(b"deprecation", SINCE), (b"link", f'<{quote(path)}>; rel="successor-version"'.encode())]

    async def announced(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return announced


def with_former(paths: dict[str, Any]) -> dict[str, Any]:
    """The paths of an OpenAPI document, and the former ones marked as deprecated."""
    former: dict[str, Any] = {}
    for old, new in MOVED.items():
        level = Level(old.split("/")[1].removesuffix("s"))
        former[PREFIX + old] = {
            method: {
                **operation,
                "deprecated": True,
                "operationId": operation["operationId"].replace("_", f"_{level}_"),
                "description": f"Use `{PREFIX}{new}`.",
                "parameters": [
                    {**each, "name": f"{level}_id"} if each["name"] == "subject_id" else each
                    for each in operation["parameters"]
                    if each["name"] != "level"
                ],
            }
            for method, operation in paths[PREFIX + new].items()
        }
    return {**paths, **former}
