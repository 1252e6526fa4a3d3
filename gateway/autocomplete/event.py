"""One report of an editor about one completion, and the rule that merges duplicate reports."""

from __future__ import annotations

import re
from typing import NamedTuple

from contracts.dated_request_id import arrived_at_s
from contracts.generation import Caller
from contracts.request_id import request_id_of
from gateway.autocomplete.event_type import EventType

_REQUEST_ID = re.compile(r"req_[0-9a-f]{36}")


class EventKey(NamedTuple):
    """The key of a report. Reports with the same key are merged."""

    request_id: str
    project_id: str
    """Project of the reporting key."""
    choice_index: int
    view_id: str
    type: str


class Event(NamedTuple):
    """A report without its key. characters: accepted; elapsed_ms: time since the completion was shown; None if not
    reported."""

    organization_id: str
    characters: int | None = None
    elapsed_ms: int | None = None

    def and_then(self, other: Event) -> Event:
        """Both reports merged: a completion accepted word by word keeps the greatest count. Commutative."""
        return Event(
            self.organization_id,
            _greatest(self.characters, other.characters),
            _greatest(self.elapsed_ms, other.elapsed_ms),
        )


def completed_request(completion_id: str) -> str | None:
    """The request id of a response's `id` or `x-request-id`; None for an id of another form."""
    request_id = request_id_of(completion_id)
    if _REQUEST_ID.fullmatch(request_id) is None or arrived_at_s(request_id) is None:
        return None
    return request_id


def key_of(request_id: str, caller: Caller, choice_index: int, view_id: str, kind: EventType) -> EventKey:
    """The key of a report about a completion."""
    return EventKey(request_id, caller.project_id, choice_index, view_id, kind.value)


def _greatest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
