"""Whether a pool's engines should draft tokens ahead: at low load, and not at the peak. Pure: time is passed in.

Checking drafts is nearly free while a step is bound by reading weights, and takes from the other streams once it is
bound by arithmetic, which is a matter of how many run. It changes the time per token and never the time to the first
one: no prediction of that knows of it.

What an engine measures of its own steps (the embedded engine's `speculative/governor.py`, SGLang's table) stays its own
affair: this rule says where the fleet's load rules drafting out, and an engine may draft less than it allows.
"""

from __future__ import annotations

import math

from contracts.speculation import WAYS, SpeculationRule, Way

WINDOW_S = 5.0
"""Over which the load is averaged: a burst of short prompts is no peak."""
OWN_TABLE = "by the engines' own table of drafts by batch; nothing is sent"
UNGOVERNED = "as each engine was started"


class Switch:
    """On or off by a load, with hysteresis.

    Off above one threshold, on below another; in between, and for `dwell_s` after each change, it stays as it is.
    """

    def __init__(self, off_above: float, on_below: float, dwell_s: float) -> None:
        self.on = False
        self.since: float | None = None
        """When it became what it is; None: it has seen no load."""
        self.switches = 0
        self._off_above, self._on_below, self._dwell_s = off_above, on_below, dwell_s

    def judge(self, load: float, now: float) -> bool:
        """Take in the load at a moment; whether that switched it. Where the first one lies in between it is off."""
        if self.since is None:
            self.on, self.since = load < self._on_below, now
            return self.on
        if now - self.since < self._dwell_s or not (load > self._off_above if self.on else load < self._on_below):
            return False
        self.on, self.since = not self.on, now
        self.switches += 1
        return True


class SpeculationGovernor:
    """One pool's. Used where the way is `REQUEST` or `VARIANTS`: an engine with a table of its own needs none."""

    def __init__(self, rule: SpeculationRule, way: Way) -> None:
        self.rule = rule
        self.way = way
        self.load = 0.0
        """Requests per usable replica, a moving mean over time."""
        self._switch = Switch(rule.off_above_running, rule.on_below_running, rule.dwell_s)
        self._seen_at: float | None = None

    @property
    def on(self) -> bool:
        """Whether engines may draft."""
        return self._switch.on

    @property
    def switches(self) -> int:
        """How often it was switched since the router started."""
        return self._switch.switches

    def saw(self, running: float, now: float) -> bool:
        """So many requests per usable replica ran or waited since it saw the last ones; whether that switched it.

        To be told before each change: a client that sends one request after the other would else be seen between two of
        them only.
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
    """The governor of a pool with this rule; None: nothing is to be done there. before: the one it had, which goes on
    where nothing has changed."""
    way = WAYS.get(driver)
    if not rule.governed or way is None or way is Way.TABLE:
        return None
    if before is not None and before.rule == rule and before.way is way:
        return before
    return SpeculationGovernor(rule, way)


def told_without(rule: SpeculationRule, driver: str) -> str:
    """What is said of drafts in a pool that has no governor."""
    if rule.governed and WAYS.get(driver) is Way.TABLE:
        return OWN_TABLE
    return UNGOVERNED if driver in WAYS else f"{UNGOVERNED}; requests to the driver {driver} cannot switch it"
