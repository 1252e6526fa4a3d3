"""Decides whether a pool's engines draft tokens ahead: at low load, and not at the peak. Pure: time is an argument.

Checking drafts is nearly free while a step is bound by reading weights. It takes time from the other streams once the
step is bound by arithmetic, which depends on the number of streams. Drafts change the time per token and never the time
to the first one, so no prediction of that includes them.

An engine's own measurement of its steps (the embedded engine's `speculative/governor.py`, SGLang's table) stays in the
engine: this rule decides when the fleet's load rules drafting out, and an engine may draft less than it allows.
"""

from __future__ import annotations

import math

from contracts.speculation import WAYS, SpeculationRule, Way

WINDOW_S = 5.0
"""Averaging time of the load: a burst of short prompts is no peak."""
OWN_TABLE = "by the engines' own table of drafts by batch; nothing is sent"
UNGOVERNED = "as each engine was started"


class Switch:
    """On or off by a load, with hysteresis.

    Off above one threshold, on below another; in between, and for `dwell_s` after each change, it stays unchanged.
    """

    def __init__(self, off_above: float, on_below: float, dwell_s: float) -> None:
        self.on = False
        self.since: float | None = None
        """Time of its last change; None: it has seen no load."""
        self.switches = 0
        self._off_above, self._on_below, self._dwell_s = off_above, on_below, dwell_s

    def judge(self, load: float, now: float) -> bool:
        """Process the load at a moment. Returns whether that switched it. If the first load lies in between, it is
        off."""
        if self.since is None:
            self.on, self.since = load < self._on_below, now
            return self.on
        if now - self.since < self._dwell_s or not (load > self._off_above if self.on else load < self._on_below):
            return False
        self.on, self.since = not self.on, now
        self.switches += 1
        return True


class SpeculationGovernor:
    """The governor of one pool. Used where the method is `REQUEST` or `VARIANTS`: an engine with a table of its own
    needs none."""

    def __init__(self, rule: SpeculationRule, way: Way) -> None:
        self.rule = rule
        self.way = way
        self.load = 0.0
        """Requests per usable replica, a moving mean over time."""
        self._switch = Switch(rule.off_above_running, rule.on_below_running, rule.dwell_s)
        self._seen_at: float | None = None

    @property
    def on(self) -> bool:
        """Engines may draft."""
        return self._switch.on

    @property
    def switches(self) -> int:
        """Number of switches since the router started."""
        return self._switch.switches

    def saw(self, running: float, now: float) -> bool:
        """Process the running and waiting requests per usable replica since the last call. Returns whether that
        switched it.

        Call it before each change: a client that sends one request after the other would otherwise be seen only between
        two of them.
        """
        if self._seen_at is None:
            self.load = running
        else:
            self.load += (1 - math.exp(-(now - self._seen_at) / WINDOW_S)) * (running - self.load)
        self._seen_at = now
        return self._switch.judge(self.load, now)

    @property
    def told(self) -> str:
        """Its state and the reason, in a few words."""
        rule = self.rule
        bound = f"off above {rule.off_above_running:g}" if self.on else f"on below {rule.on_below_running:g}"
        what = {Way.REQUEST: "", Way.VARIANTS: ", by preference among replicas"}.get(self.way, "")
        return f"{'on' if self.on else 'off'}{what}: {self.load:.1f} requests a replica, {bound}"


def governor_of(rule: SpeculationRule, driver: str, before: SpeculationGovernor | None) -> SpeculationGovernor | None:
    """The governor of a pool with this rule; None: none is needed. before: the previous governor, which is kept if
    nothing has changed."""
    way = WAYS.get(driver)
    if not rule.governed or way is None or way is Way.TABLE:
        return None
    if before is not None and before.rule == rule and before.way is way:
        return before
    return SpeculationGovernor(rule, way)


def told_without(rule: SpeculationRule, driver: str) -> str:
    """The text about drafts for a pool that has no governor."""
    if rule.governed and WAYS.get(driver) is Way.TABLE:
        return OWN_TABLE
    return UNGOVERNED if driver in WAYS else f"{UNGOVERNED}; requests to the driver {driver} cannot switch it"
