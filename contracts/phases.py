"""Splits the wall time of one request into phases. The phases partition it: they sum to the whole by construction."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum


class Phase(StrEnum):
    """The parts of a request's wall time, in the order they happen."""

    AUTH = "auth"
    """Body read and decoded, key checked."""
    LIMIT = "limit"
    """Prompt counted, reservation taken, journal opened."""
    QUEUE = "queue"
    """Held in the router's queue, by the router's own clock."""
    ROUTE = "route"
    """The rest of the way to the router and back."""
    ENGINE = "engine"
    """Request sent to the engine until its first event: the engine's queue and, mostly, prefill."""
    FIRST_TOKEN = "first_token"
    """First event (often only a role) until the first generated text."""
    DECODE = "decode"
    """First generated text until the engine's last event."""
    STREAM = "stream"
    """Engine done until the client has the last byte: journal commit, settlement, final frames."""


_ORDER = tuple((phase, phase.value) for phase in Phase)


class PhaseClock:
    """Splits one request's wall time into phases.

    Every instant between construction and the last `end` belongs to exactly one phase. Durations are seconds on a
    monotonic clock. A phase may be ended more than once (a second attempt): its parts add up.
    """

    __slots__ = ("_as_ms", "_clock", "_mark", "durations_s", "started_s")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.started_s = clock()
        self._mark = self.started_s
        self.durations_s: dict[Phase, float] = {}
        self._as_ms: dict[str, float] | None = None
        """The cached result of `as_ms`; None if a phase has ended since."""

    def end(self, phase: Phase) -> None:
        """Add the time since the previous `end` to `phase`."""
        now = self._clock()
        self.durations_s[phase] = self.durations_s.get(phase, 0.0) + now - self._mark
        self._mark = now
        self._as_ms = None

    def end_split(self, phase: Phase, inner: Phase, inner_s: float) -> None:
        """Like `end(phase)`, but `inner_s` of it, as another process measured it, belongs to `inner`."""
        now = self._clock()
        elapsed = now - self._mark
        inner_s = min(max(inner_s, 0.0), elapsed)
        self.durations_s[inner] = self.durations_s.get(inner, 0.0) + inner_s
        self.durations_s[phase] = self.durations_s.get(phase, 0.0) + elapsed - inner_s
        self._mark = now
        self._as_ms = None

    @property
    def age_s(self) -> float:
        """Wall time since construction."""
        return self._clock() - self.started_s

    @property
    def total_s(self) -> float:
        """Wall time accounted for so far."""
        return self._mark - self.started_s

    @property
    def first_token_s(self) -> float | None:
        """Time from construction until the first generated text; None if there was none. Only the phases `decode` and
        `stream` follow it."""
        durations_s = self.durations_s
        if Phase.FIRST_TOKEN not in durations_s:
            return None
        return self.total_s - durations_s.get(Phase.DECODE, 0.0) - durations_s.get(Phase.STREAM, 0.0)

    def as_ms(self) -> dict[str, float]:
        """Milliseconds by phase name, rounded to the microsecond, in the order of `Phase`. Callers must not modify
        it."""
        if self._as_ms is None:
            durations_s = self.durations_s
            self._as_ms = {name: round(durations_s[phase] * 1e3, 3) for phase, name in _ORDER if phase in durations_s}
        return self._as_ms
