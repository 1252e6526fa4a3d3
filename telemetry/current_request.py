"""The request that a task works for, so that its log lines can name it. Set once per request, read only where a line is
written.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec


class CurrentRequest(msgspec.Struct, gc=False):
    """The ids of a request, filled in as they become known; empty if unknown or absent. Never any content."""

    request_id: str = ""
    organization_id: str = ""
    trace_id: str = ""


current_request: ContextVar[CurrentRequest | None] = ContextVar("current_request", default=None)
"""The request of the running task and those it starts. Each request has its own task, so it need not be reset."""
