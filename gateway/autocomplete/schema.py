"""Request and response bodies of the completion routes: ours, and those of Tabby's editor plug-ins."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.autocomplete.event_type import EventType

COMPLETION_ID = "^(req_|chatcmpl-|cmpl-)[0-9a-f]{36}$"
"""An answer's `id` or an `x-request-id`, as a pattern for the OpenAPI document."""
ChoiceIndex = Annotated[int, Meta(ge=0, le=127)]
ViewId = Annotated[str, Meta(max_length=200, pattern=r"^[0-9A-Za-z._:/-]*$(?![\s\S])")]
"""An identifier, never text."""
Milliseconds = Annotated[int, Meta(ge=0, le=86_400_000)]
Characters = Annotated[int, Meta(ge=0, le=1_000_000)]


class CompletionEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A user's action on one completion."""

    type: EventType
    choice_index: ChoiceIndex = 0
    view_id: ViewId = ""
    """The editor's name of this view, if one completion is shown several times."""
    elapsed_ms: Milliseconds | None = None
    """Time since the completion was shown."""
    characters: Characters | None = None
    """Accepted characters; without this field, a `select` accepts the whole answer."""


class TabbyEventType(StrEnum):
    """Tabby's names."""

    VIEW = "view"
    SELECT = "select"
    DISMISS = "dismiss"


class TabbyEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The same as Tabby's plug-ins report it. Fields that are not listed are ignored: versions differ."""

    type: TabbyEventType
    completion_id: Annotated[str, Meta(max_length=200, extra_json_schema={"pattern": COMPLETION_ID})]
    choice_index: ChoiceIndex = 0
    view_id: ViewId | None = None
    elapsed: Annotated[float, Meta(ge=0, le=86_400_000)] | None = None
    """Milliseconds since the completion was shown."""


class TabbyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Version that a plug-in compares before it uses a route."""

    build_date: str = ""
    build_timestamp: str = ""
    git_sha: str = ""
    git_describe: str = "v0.30.0"
    """The Tabby release whose routes these are; Slipstream's own version is not revealed."""


class TabbyHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in stays disconnected until it gets this. Tabby describes its machine here; Slipstream does not."""

    model: str | None
    """The first autocomplete model that the key may use; null without one: the plug-in then requests no completions."""
    device: str = "remote"
    cuda_devices: list[str] = []
    models: dict[str, str] = {}
    arch: str = ""
    cpu_info: str = ""
    cpu_count: int = 0
    version: TabbyVersion = TabbyVersion()


class TabbyServerSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Server settings for plug-ins."""

    disable_client_side_telemetry: Literal[True] = True
    """Plug-ins report nothing to Tabby's makers; views, selections and dismissals come here only."""
