"""The known stream's dress: the headers and errors of a chat completion, under a name of its own."""

from __future__ import annotations

from gateway.wire.openai.format import ChatFormat


class StreamAuditFormat(ChatFormat):
    """GET /v1/stream-audit."""

    name = "stream_audit"
