"""The known stream's wire format: the headers and errors of a chat completion, under its own name."""

from __future__ import annotations

from gateway.wire.openai.format import ChatFormat


class StreamAuditFormat(ChatFormat):
    """GET /v1/stream-audit."""

    name = "stream_audit"
