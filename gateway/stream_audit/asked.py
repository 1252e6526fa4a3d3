"""Parameters of the known stream, within the bounds. Pure."""

from __future__ import annotations

from urllib.parse import parse_qsl

import msgspec

from contracts.errors import InvalidField, UnknownField
from gateway.stream_audit.config import StreamAuditConfig

EVENTS, INTERVAL_MS = "events", "interval_ms"
DEFAULT_EVENTS, DEFAULT_INTERVAL_MS = 20, 100
MAX_DIGITS = 9
"""Limit of a number's digits: longer numbers are out of every range, and slow to parse."""


class Asked(msgspec.Struct, frozen=True):
    """Number and interval of events."""

    events: int
    interval_ms: int

    @property
    def duration_s(self) -> float:
        """Seconds from the first event to the last."""
        return (self.events - 1) * self.interval_ms / 1e3


def asked_of(query: bytes, config: StreamAuditConfig) -> Asked:
    """Read a query string. Raises InvalidField and UnknownField, which name the parameter and its range."""
    parameters = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    longest_ms = int(config.max_duration_s * 1e3)
    default_ms = max(DEFAULT_INTERVAL_MS, config.min_interval_ms)
    interval_ms = _number(parameters, INTERVAL_MS, default_ms, config.min_interval_ms, longest_ms)
    default = min(DEFAULT_EVENTS, config.max_events, 1 + longest_ms // interval_ms)
    events = _number(parameters, EVENTS, default, 1, config.max_events)
    if parameters:
        raise UnknownField(
            f"Unknown parameter: '{min(parameters)[:100]}'. There are '{EVENTS}' and '{INTERVAL_MS}'.",
            param=min(parameters)[:100],
        )
    asked = Asked(events, interval_ms)
    if asked.duration_s > config.max_duration_s:
        raise InvalidField(
            f"Invalid value for '{EVENTS}': {events} events {interval_ms} ms apart take {asked.duration_s:g} s, and a "
            f"stream may take {config.max_duration_s:g} s; request fewer events or a shorter interval.",
            param=EVENTS,
        )
    return asked


def _number(parameters: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = parameters.pop(name, str(default))
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None
    if number is None or not least <= number <= most:
        raise InvalidField(
            f"Invalid value for '{name}': {text[:100]!r}; it must be a whole number from {least} to {most}.", param=name
        )
    return number
