"""Settings of what processes tell about themselves: their log, and traces of requests."""

from __future__ import annotations

from typing import Literal

import msgspec


class LoggingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What processes of ours write to stderr, which `up` collects in files."""

    format: Literal["text", "json"] = "text"
    """`text`: lines for people. `json`: one JSON object a line, with the request, its organization and its trace where
    a line is about one."""
