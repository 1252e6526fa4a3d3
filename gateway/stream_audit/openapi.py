"""The known stream in the OpenAPI document of the inference API."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.stream_audit import PATH
from gateway.stream_audit.asked import DEFAULT_EVENTS, DEFAULT_INTERVAL_MS, EVENTS, INTERVAL_MS
from gateway.stream_audit.config import StreamAuditConfig
from gateway.wire.errors import EVERY_OPERATION
from gateway.wire.operation import refused

ERROR = {"$ref": "#/components/schemas/ErrorBody"}
DESCRIPTION = """Each event is `data:` and a JSON object with its `number`, from 0, and `sent_us`, the gateway's
monotonic clock just before it was written; the first one's `opening` says how the request arrived. Ends with
`data: [DONE]`. Costs one request of the key's limits and no tokens. `slipstream tools audit-stream` reads it."""
REFUSALS = {
    **EVERY_OPERATION,
    400: "A parameter is out of its range: `error.param` names it.",
    401: "No key, or an invalid one.",
    403: "The tenant is disabled.",
    429: "A limit of yours, of audit streams at once, or of connections.",
    503: "Our load, not your limit: try again after `Retry-After`.",
}


def with_stream_audit(document: bytes, config: StreamAuditConfig) -> bytes:
    """The document as JSON, with this path."""
    whole = msgspec.json.decode(document)
    whole["paths"][PATH] = {"get": _operation(config)}
    return msgspec.json.encode(whole)


def _operation(config: StreamAuditConfig) -> dict[str, Any]:
    longest_ms = int(config.max_duration_s * 1e3)
    return {
        "operationId": "get_stream_audit",
        "summary": "A stream of numbered events at a known pace, to measure the path to the client.",
        "description": DESCRIPTION,
        "parameters": [
            _parameter(
                EVENTS,
                f"How many. In all they may take {config.max_duration_s:g} s, `{INTERVAL_MS}` apart.",
                1,
                config.max_events,
                DEFAULT_EVENTS,
            ),
            _parameter(INTERVAL_MS, "Between two.", config.min_interval_ms, longest_ms, DEFAULT_INTERVAL_MS),
        ],
        "responses": {
            "200": {
                "description": f"The stream; it takes at most {config.max_duration_s:g} s.",
                "content": {"text/event-stream": {}},
            },
            **refused(ERROR, REFUSALS),
        },
    }


def _parameter(name: str, description: str, least: int, most: int, default: int) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": least, "maximum": most, "default": min(max(default, least), most)}
    return {"name": name, "in": "query", "description": description, "schema": schema}
