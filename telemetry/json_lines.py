"""Log records as JSON, one object a line, which log collectors parse without custom rules."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from telemetry.current_request import current_request


def json_line(created_s: float, level: str, logger: str, message: str, **more: Any) -> str:
    """One line without its line break. created_s: seconds since 1970. more: further fields, unless empty or None."""
    time = datetime.fromtimestamp(created_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": time, "level": level, "logger": logger, "message": message}
    # only ASCII: stderr may have any encoding, and its escapes for other characters are not JSON
    return json.dumps(line | {name: value for name, value in more.items() if value not in ("", None)})


FIELDS = "fields"
"""Attribute of a record, given as `extra={FIELDS: …}`: a mapping of further fields of its line."""


class JsonLines(logging.Formatter):
    """Formats a record with the ids of its request; an exception is one field."""

    def format(self, record: logging.LogRecord) -> str:
        """Never raises: a record whose arguments do not fit its text is written unformatted."""
        try:
            message = record.getMessage()
        except Exception:
            message = f"{record.msg} {record.args!r}"
        request = current_request.get()
        more: dict[str, Any] = {} if request is None else msgspec.structs.asdict(request)
        more |= getattr(record, FIELDS, {})
        if record.exc_info:
            more["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            more["stack"] = self.formatStack(record.stack_info)
        return json_line(record.created, record.levelname, record.name, message, **more)
