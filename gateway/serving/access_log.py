"""Logs a line for each ended request with its caller, status and duration, but no content."""

from __future__ import annotations

import json
import logging
import re

from contracts.misfit import shortened
from contracts.printable import printable
from gateway.serving.request import Arrival
from gateway.serving.request_spans import Ended
from telemetry.json_lines import FIELDS

_PLAIN = re.compile(r"[\w.:/+-]+", re.ASCII)
logger = logging.getLogger(__name__)


class AccessLog:
    """Logs all requests to a gateway's inference API, including refused and unauthenticated ones."""

    def write(self, arrival: Arrival, path: str, ended: Ended, organization_id: str) -> None:
        """path: the endpoint's path. organization_id: empty without a valid key. Text lines have the same fields as
        JSON lines, in the same order. Unknown fields are left out."""
        known = {
            name: value for name, value in _fields(arrival, path, ended, organization_id).items() if value is not None
        }
        line = " ".join(f"{name}={_quoted(value)}" for name, value in known.items())
        logger.info("%s", line, extra={FIELDS: known})


def _quoted(value: str | float) -> str:
    """Clients choose some values, and a space or an equals sign in a value must not begin another field."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _fields(arrival: Arrival, path: str, ended: Ended, organization_id: str) -> dict[str, str | float | None]:
    request = ended.request
    model = arrival.model if request is None else request.model
    fields: dict[str, str | float | None] = {
        "request_id": arrival.request_id,
        "client_request_id": arrival.client_request_id,
        "organization_id": organization_id or None,
        "network": arrival.network or None,
        "client": arrival.client,
        "path": path,
        "status": ended.status,
        "error_code": ended.error_code,
        "model": None if model is None else printable(shortened(model)),
        "total_ms": round(arrival.clock.age_s * 1e3, 3),
    }
    if request is None:
        return fields
    caller, measured = request.caller, request.measurement
    return fields | {
        "project_id": caller.project_id,
        "key_id": caller.key_id,
        "tier": request.tier,
        "pool": measured.pool,
        "replica_id": measured.replica_id,
        "prompt_tokens": measured.prompt_tokens,
        "cached_tokens": measured.cached_tokens,
        "completion_tokens": measured.completion_tokens,
        "ttft_ms": measured.ttft_ms,
    }
