"""Holds this gateway's unsettled reservations, and announces them to Valkey.

Valkey forgets an epoch that sends no heartbeat, and everything if it loses its data. Open reservations are then
announced again.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from contracts.generation import Caller, Tier
from gateway.limits.cost import Cost
from gateway.limits.counting import Round
from gateway.limits.epoch import Epoch, organizations_key
from gateway.limits.metrics import LimitsMetrics
from gateway.limits.plan import Plan, prefix_of
from gateway.limits.rate_state import RateState
from gateway.limits.script import Calls, Script
from storage.valkey import ConnectionLost, Valkey, forgotten
from storage.valkey_command import pack

FRESH_S = 5.0
"""How long requests may still arrive under limits without a new budget, because a change takes this long to spread."""

logger = logging.getLogger(__name__)


class Reservation(msgspec.Struct):
    """Permission to run one request of up to `cost`. state: for the response's headers; None if nothing limits it.

    calls: its calls to Valkey. local: the plan that counted it without Valkey.
    """

    id: str
    caller: Caller
    tier: Tier
    cost: Cost
    state: RateState | None = None
    calls: Calls | None = None
    local: Plan | None = None


class OpenReservations:
    """The reservations of one limiter that are not settled."""

    def __init__(
        self,
        valkey: Valkey,
        script: Script,
        epoch: Epoch,
        key_prefix: str,
        metrics: LimitsMetrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._valkey = valkey
        self._script = script
        self._epoch = epoch
        self._key_prefix = key_prefix
        self._metrics = metrics
        self._open: dict[str, dict[str, Reservation]] = {}
        """Reservations by organization and id, oldest first."""
        self._monotonic = monotonic
        self.unlimited: dict[str, Reservation] = {}
        """Reservations without limits by id; unknown to Valkey unless a budget is created while they run."""
        self.fresh: dict[str, list[tuple[float, Round]]] = {}
        """Recently counted budgets by organization, each with the end of its `FRESH_S`."""
        self._noted: set[str] = set()
        """Organizations in which this run may have open reservations, as Valkey knows."""

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def ids(self) -> set[str]:
        return {name for siblings in self._open.values() for name in siblings}

    def add(self, reservation: Reservation, organization_id: str) -> None:
        """Keep a reservation alive by the heartbeat until it is removed."""
        self._open.setdefault(organization_id, {})[reservation.id] = reservation
        if organization_id in self.fresh:
            self.catch_up(reservation)

    def catch_up(self, reservation: Reservation) -> None:
        """Count a request in a new budget that its limits lack."""
        fresh = self._fresh_in(reservation.caller.organization_id)
        with contextlib.suppress(ConnectionLost):  # the budget is then counted again
            for _, each in fresh:
                if self._lacks(reservation, each):
                    self._join(reservation, each)

    def remove(self, reservation: Reservation) -> None:
        """Remove a reservation. Idempotent."""
        organization_id = reservation.caller.organization_id
        siblings = self._open.get(organization_id)
        if siblings is not None:
            siblings.pop(reservation.id, None)
            if not siblings:
                del self._open[organization_id]

    def note(self, organization_id: str) -> None:
        """Record, before the first reservation, where a later run must search. Raises ConnectionLost."""
        if organization_id not in self._noted:
            self._note(organization_id)

    def beat(self) -> None:
        """Keep this run alive in every organization in which it has open reservations."""
        self._metrics.open.set(len(self))
        for organization_id in list(self._open):
            key = f"{self._key_prefix}:{{{organization_id}}}:epochs"
            beat = self._script.upkeep("beat", [key], self._epoch.name, self._script.lease_ms)
            try:
                self._valkey.send(beat, partial(self._beaten, organization_id))
            except ConnectionLost:
                return  # two more beats fit into the lease

    def reconnected(self, restarted: bool) -> None:
        """Announce the reservations that Valkey does not know: those made without it, or all after its restart."""
        self._noted.clear()
        for organization_id, siblings in self._open.items():
            if restarted or any(reservation.local is not None for reservation in siblings.values()):
                self._announce_all(organization_id)

    def join(self, rounds: Sequence[Round]) -> None:
        """Count all open reservations of a round in its budget, and later ones whose limits lack it, for `FRESH_S`.
        Raises ConnectionLost."""
        for each in rounds:
            fresh = self._fresh_in(each.organization_id)
            self.fresh[each.organization_id] = [*fresh, (self._monotonic() + FRESH_S, each)]
            limited = self._open.get(each.organization_id, {}).values()
            for reservation in [*limited, *self.unlimited.values()]:
                if each.concerns(reservation.caller, reservation.tier):
                    self._join(reservation, each)

    def _note(self, organization_id: str) -> None:
        key = organizations_key(self._key_prefix, self._epoch.instance)
        self._valkey.send(pack(("SADD", key, f"{self._epoch.name} {organization_id}")))
        self._noted.add(organization_id)

    def _fresh_in(self, organization_id: str) -> list[tuple[float, Round]]:
        now_s = self._monotonic()
        fresh = [(until_s, each) for until_s, each in self.fresh.pop(organization_id, ()) if until_s > now_s]
        if fresh:
            self.fresh[organization_id] = fresh
        return fresh

    def _lacks(self, reservation: Reservation, budget: Round) -> bool:
        rules = () if reservation.calls is None else reservation.calls.plan.rules
        known = any(rule.name == budget.planned.name for rule in rules)
        return not known and budget.concerns(reservation.caller, reservation.tier)

    def _join(self, reservation: Reservation, budget: Round) -> None:
        """Count the reservation in a budget that may be newer."""
        organization_id = budget.organization_id
        if self._lacks(reservation, budget):
            plan = Plan(organization_id, prefix_of(self._key_prefix, organization_id), ())
            if reservation.calls is not None:
                plan = reservation.calls.plan
            reservation.calls = Calls(self._script, msgspec.structs.replace(plan, rules=(*plan.rules, budget.planned)))
        if self.unlimited.pop(reservation.id, None) is not None:
            self._open.setdefault(organization_id, {})[reservation.id] = reservation
            self.note(organization_id)
        self._announce(reservation)

    def _announce_all(self, organization_id: str) -> None:
        try:
            self._note(organization_id)
            for reservation in list(self._open.get(organization_id, {}).values()):
                self._announce(reservation)
        except ConnectionLost:
            return  # the next heartbeat finds the same

    def _announce(self, reservation: Reservation) -> None:
        assert reservation.calls is not None
        self._metrics.announced.inc()
        self._valkey.send(reservation.calls.announce(reservation.id, reservation.cost), self._reloaded)

    def _beaten(self, organization_id: str, reply: object) -> None:
        self._reloaded(reply)
        if reply == [0]:
            logger.warning("Valkey had lost the open reservations of organization %s; announced again", organization_id)
            self._announce_all(organization_id)

    def _reloaded(self, reply: object) -> None:
        if forgotten(reply) and self._valkey.connected:
            self._valkey.load_scripts()
