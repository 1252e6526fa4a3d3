"""One report of an editor about one completion, and which reports are the same."""

from __future__ import annotations

import re
from typing import NamedTuple

from contracts.dated_request_id import arrived_at_s
from contracts.generation import Caller
from contracts.request_id import request_id_of
from gateway.autocomplete.event_type import EventType

_REQUEST_ID = re.compile(r"req_[0-9a-f]{36}")


class EventKey(NamedTuple):
    """Reports with the same key are one."""

    request_id: str
    project_id: str
    """Of the key that reports."""
    choice_index: int
    view_id: str
    type: str


class Event(NamedTuple):
    """What is told beside the key. characters: taken; elapsed_ms: since it was shown; None: not told."""

    organization_id: str
    characters: int | None = None
    elapsed_ms: int | None = None

    def and_then(self, other: Event) -> Event:
        """What both tell together: a completion taken word by word has the greatest count. In any order the same."""
        return Event(
            self.organization_id,
            _greatest(self.characters, other.characters),
            _greatest(self.elapsed_ms, other.elapsed_ms),
        )


def completed_request(completion_id: str) -> str | None:
    """The request behind an answer's `id` or an `x-request-id`; None for what cannot be one."""
    request_id = request_id_of(completion_id)
    if _REQUEST_ID.fullmatch(request_id) is None or arrived_at_s(request_id) is None:
        return None
    return request_id


def key_of(request_id: str, caller: Caller, choice_index: int, view_id: str, kind: EventType) -> EventKey:
    """What the report is about, and whose it is."""
    return EventKey(request_id, caller.project_id, choice_index, view_id, kind.value)


def _greatest(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
