"""Takes a replica that is much slower than its pool out for a while, like Envoy's outlier detection.

    reports: OUTLIER_RATIO times slower ──by two organizations or more──► out
                                      └──by one alone──► probes of our own ──SLOW_PROBES in a row as slow──► out

One organization's prompts may be the cause, so its reports alone do not take the replica from others; the probe's
prompt is the router's own. A probe is timed while the engine computes no other prompt, or at any time if one
organization has the pool to itself, because no other can then lose by it.
"""

from __future__ import annotations

from enum import Enum

from router.core.events import Probe
from router.core.latency_model import START_S, pairs_of
from router.core.pool import PoolState
from router.core.replica import Replica

OUTLIER_RATIO = 8.0
"""Factor by which a suspected replica is slower than its pool, by `OUTLIER_REPORTS` responses or more."""
OUTLIER_REPORTS = 24
OUTLIERS_AT_MOST = 1 / 3
"""Share of a pool that may be out for slowness at once; beyond it, the pool is slow, not the replica."""
SLOW_PROBES = 3
"""Slow probes in a row that take a replica out; a single one may be a hiccup of the engine or of this process."""


class Verdict(Enum):
    """The action for a replica that may be slower than its pool."""

    KEEP = "keep"
    PROBE = "probe"
    EJECT = "eject"


def judge(pool: PoolState, replica: Replica, now: float) -> Verdict:
    """The verdict from all reports and probes so far."""
    ratio = replica.ratio
    if ratio.value < OUTLIER_RATIO or ratio.count < OUTLIER_REPORTS or replica.breaker.open:
        return Verdict.KEEP
    if sum(each.breaker.open for each in pool.replicas) + 1 > len(pool.replicas) * OUTLIERS_AT_MOST:
        return Verdict.KEEP
    if len(ratio.voices(now)) > 1 or replica.slow_probes >= SLOW_PROBES:
        return Verdict.EJECT
    return Verdict.PROBE


def probe_expected_s(pool: PoolState, replica: Replica, now: float) -> float:
    """Expected duration of a probe sent now to an average engine; 0 if other requests' prompts would decide it, or if
    the pool's speed is unknown."""
    if not pool.latency_model.trusted:
        return 0.0
    if replica.prefilling and len({cell for each in pool.replicas for cell in each.ratio.voices(now)}) > 1:
        return 0.0
    tokens, pairs = replica.prefill_tokens + 1, replica.prefill_pairs + pairs_of(1, 1)
    return max(pool.latency_model.first_token_s(tokens, pairs, replica.decoding), START_S)


def probe_ended(replica: Replica, probe: Probe, now: float) -> None:
    """Count a probe if it reveals anything about the engine's speed."""
    if probe in (Probe.WELL, Probe.LATE) and replica.probe_expected_s:
        slow = now - replica.probe_asked_at >= OUTLIER_RATIO * replica.probe_expected_s
        replica.slow_probes = replica.slow_probes + 1 if slow else 0
