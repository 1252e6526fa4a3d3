"""Decides whether a pool's engines draft tokens, which they do at low load but not at the peak. The rule is pure: time
is an argument.

Checking drafts is nearly free while a step is bound by reading weights. It takes time from other streams once the step
is bound by arithmetic, which depends on the number of streams. Drafts change the time per token but never the time to
the first token, so no prediction of the latter includes them.

Each engine still measures its own steps (the embedded engine's `speculative/governor.py`, SGLang's table): this rule
decides when the fleet's load rules out drafting, and an engine may draft less than the rule allows.
"""

from __future__ import annotations

import math

from contracts.speculation import WAYS, SpeculationRule, Way

WINDOW_S = 5.0
"""Averaging time of the load, so that a burst of short prompts is not a peak."""
OWN_TABLE = "by the engines' own table of drafts by batch; nothing is sent"
UNGOVERNED = "as each engine was started"


class Switch:
    """A switch that a load turns on and off, with hysteresis.

    It turns off above one threshold and on below another. In between, and for `dwell_s` after a change, it stays
    unchanged.
    """

    def __init__(self, off_above: float, on_below: float, dwell_s: float) -> None:
        self.on = False
        self.since: float | None = None
        """Time of the last change; None before the first load."""
        self.switches = 0
        self._off_above, self._on_below, self._dwell_s = off_above, on_below, dwell_s

    def judge(self, load: float, now: float) -> bool:
        """Process the load at `now`. Returns whether that changed the switch. If the first load is between the
        thresholds, the switch is off."""
        if self.since is None:
            self.on, self.since = load < self._on_below, now
            return self.on
        if now - self.since < self._dwell_s or not (load > self._off_above if self.on else load < self._on_below):
            return False
        self.on, self.since = not self.on, now
        self.switches += 1
        return True


class SpeculationGovernor:
    """The governor of one pool with the way `REQUEST` or `VARIANTS`; an engine with a table of its own needs none."""

    def __init__(self, rule: SpeculationRule, way: Way) -> None:
        self.rule = rule
        self.way = way
        self.load = 0.0
        """Requests per usable replica, as a moving mean over time."""
        self._switch = Switch(rule.off_above_running, rule.on_below_running, rule.dwell_s)
        self._seen_at: float | None = None

    @property
    def on(self) -> bool:
        """Whether engines may draft."""
        return self._switch.on

    @property
    def switches(self) -> int:
        """Number of switches since the router started."""
        return self._switch.switches

    def saw(self, running: float, now: float) -> bool:
        """Process the running and waiting requests per usable replica since the last call. Returns whether the switch
        changed.

        Callers use it before each change; otherwise, a client that sends one request after another would only be seen
        between two requests.
        """
        if self._seen_at is None:
            self.load = running
        else:
            self.load += (1 - math.exp(-(now - self._seen_at) / WINDOW_S)) * (running - self.load)
        self._seen_at = now
        return self._switch.judge(self.load, now)

    @property
    def told(self) -> str:
        """The state and its reason, in a few words."""
        rule = self.rule
        bound = f"off above {rule.off_above_running:g}" if self.on else f"on below {rule.on_below_running:g}"
        means = {Way.REQUEST: "", Way.VARIANTS: ", by preference among replicas"}.get(self.way, "")
        return f"{'on' if self.on else 'off'}{means}: {self.load:.1f} requests a replica, {bound}"


def governor_of(rule: SpeculationRule, driver: str, before: SpeculationGovernor | None) -> SpeculationGovernor | None:
    """The governor of a pool with this rule; None if none is needed. before: the previous governor, which is kept if
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
