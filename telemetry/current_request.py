"""Which request a task works for, so that what it logs can say so. Set once a request, read only where a line is
written."""

from __future__ import annotations

from contextvars import ContextVar

import msgspec


class CurrentRequest(msgspec.Struct, gc=False):
    """The names of a request, filled in as they become known; empty: not known, or none. Never anything of its
    content."""

    request_id: str = ""
    organization_id: str = ""
    trace_id: str = ""


current_request: ContextVar[CurrentRequest | None] = ContextVar("current_request", default=None)
"""Of the running task and those it starts. A request has a task of its own, so that nobody need reset it."""
