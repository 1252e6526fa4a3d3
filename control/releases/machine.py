"""The states of a release and their transitions. Pure; every change of a release's place goes through `after`.

waiting ──begin──▶ running ──advance, promote──▶ running … ──▶ promoted
                    │   ▲
      hold, undecided   resume
                    ▼   │
                   held ──promote──▶ running
(any that has not ended) ──fail, roll back, lost──▶ rolled back
promoted ──roll back──▶ rolled back, as long as its model is served as it was left
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from contracts.errors import Conflict


class State(StrEnum):
    """Of a release."""

    WAITING = "waiting"
    """The release waits for enough baseline requests for a comparison; no traffic is split."""
    RUNNING = "running"
    HELD = "held"
    """The release does not advance by itself, but is still rolled back by itself."""
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"

    @property
    def ended(self) -> bool:
        """Whether the release no longer changes by itself."""
        return self in (State.PROMOTED, State.ROLLED_BACK)

    @property
    def splits(self) -> bool:
        """Whether the release splits traffic."""
        return self in (State.RUNNING, State.HELD)


class Event(StrEnum):
    """Event of a release."""

    START = "start"
    """The release was created."""
    BEGIN = "begin"
    """The thresholds were fixed."""
    OBSERVE = "observe"
    """New evidence decided nothing."""
    ADVANCE = "advance"
    """The evidence lets the candidate advance."""
    FAIL = "fail"
    """The evidence is against the candidate."""
    UNDECIDED = "undecided"
    """The whole budget of evidence decided nothing."""
    HOLD = "hold"
    RESUME = "resume"
    PROMOTE = "promote"
    """An operator moved the release one stage further."""
    ROLL_BACK = "roll_back"
    """An operator rolled the release back, or a night of evals did after the promotion."""
    LOST = "lost"
    """The fleet was changed outside the release: its model was edited, or one of its pools was removed."""


class Place(msgspec.Struct, frozen=True):
    """A state and a stage, which is an index of the release's stages."""

    state: State
    stage: int


OUT = frozenset({Event.FAIL, Event.ROLL_BACK, Event.LOST})
"""Events that end a release in any state."""
_FURTHER = frozenset({Event.ADVANCE, Event.PROMOTE})
ON = _FURTHER | {Event.BEGIN}
"""Events that give the candidate more traffic."""
_REFUSED = {
    State.WAITING: "waits for requests of its baseline, and serves no customers yet",
    State.RUNNING: "is running",
    State.HELD: "is held",
    State.PROMOTED: "has been promoted, and its model's pool is the candidate's",
    State.ROLLED_BACK: "was rolled back",
}


def after(place: Place, event: Event, stages: int) -> Place:
    """The place after an event. stages: number of stages, the last being all traffic.

    Raises Conflict if the event cannot happen.
    """
    match place.state:
        case State.PROMOTED if event is Event.ROLL_BACK:
            return Place(State.ROLLED_BACK, place.stage)
        case _ if place.state.ended:
            pass
        case _ if event in OUT:
            return Place(State.ROLLED_BACK, place.stage)
        case State.WAITING if event is Event.BEGIN:
            return Place(State.RUNNING, place.stage)
        case State.RUNNING | State.HELD if event is Event.OBSERVE:
            return place
        case State.RUNNING if event in _FURTHER:
            return _further(place, stages)
        case State.HELD if event is Event.PROMOTE:
            return _further(place, stages)
        case State.RUNNING if event in (Event.HOLD, Event.UNDECIDED):
            return Place(State.HELD, place.stage)
        case State.HELD if event is Event.RESUME:
            return Place(State.RUNNING, place.stage)
    raise Conflict(f"'{event.value}' is not possible for this release: it {_REFUSED[place.state]}.")


def _further(place: Place, stages: int) -> Place:
    last = stages - 1
    return Place(State.PROMOTED if place.stage + 1 == last else State.RUNNING, place.stage + 1)
