"""Measurements of the judged window and of an earlier one, independent of their source."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from contracts.fair_share import FAIR_SHARE
from contracts.generation import Tier
from contracts.length_class import LengthClass
from control.diagnosis.findings.measure import Measure

WAITED_MS = 100.0
"""The shortest wait that users notice."""
TAILS = ((500, "p99"), (100, "p95"), (50, "p90"))
"""A quantile is judged if at least five requests lie beyond it; with fewer, single requests decide it."""


class Quantiles(msgspec.Struct, frozen=True):
    """A distribution. n: number of measured requests."""

    n: int
    p50: float
    p90: float
    p95: float
    p99: float

    @property
    def tail(self) -> str | None:
        """The name of the highest quantile that n supports; None if it supports none."""
        return next((name for least, name in TAILS if self.n >= least), None)

    def value(self, statistic: str) -> float:
        """The value of a statistic: `p50` or a tail's name."""
        return float(getattr(self, statistic))


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Answered requests that share all labels that are not None."""

    requests: int
    tier: Tier | None = None
    length: LengthClass | None = None
    pool: str | None = None
    replica_id: str | None = None
    organization: str | None = None
    measures: dict[Measure, Quantiles] = {}
    beyond: dict[Measure, int] = {}
    """By measure, the requests that miss their class's objective."""
    late_ms: dict[Measure, float] = {}
    """The mean of each earlier phase, over requests that miss the objective of the time to first token."""
    waited: int = 0
    """Requests that waited `WAITED_MS` or longer before any computation."""
    prompt_tokens: int = 0
    """Sums over requests whose engine reported its cached tokens."""
    cached_tokens: int = 0
    sampled_tokens: int = 0
    """Tokens of prompts that were compared with earlier ones of their organization."""
    reusable_tokens: int = 0
    """The part of them that repeats the beginning of an earlier prompt, whether or not an engine still cached it."""
    retractions_known: int = 0
    """Requests whose engines report retractions."""
    retracted: int = 0
    """The part of them that engines restarted."""

    @property
    def label(self) -> str:
        """The labels for a sentence, such as `chat, short`."""
        labels = (self.tier, self.length, self.pool, self.replica_id, self.organization)
        return ", ".join(str(label) for label in labels if label is not None) or "all requests"

    @property
    def cached_share(self) -> float | None:
        """Cached share of the prompt tokens; None if unknown."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def reusable_share(self) -> float | None:
        """Reusable share of the prompt tokens; None if prompts were not compared."""
        return self.reusable_tokens / self.sampled_tokens if self.sampled_tokens else None


class Part(msgspec.Struct, frozen=True):
    """Cached tokens of one organization's prompts in one of `PARTS` equal parts of the window."""

    organization: str
    number: int
    requests: int
    prompt_tokens: int
    cached_tokens: int


PARTS = 3


class Refusal(msgspec.Struct, frozen=True):
    """Requests that a limit refused. rule: as in the client's error, e.g. `requests_per_minute of the key`;
    `FAIR_SHARE` for requests without room because their organization exceeded its share."""

    code: str
    rule: str
    count: int


class Refused(msgspec.Struct, frozen=True):
    """Refused requests of one organization and key. key: its name and id; None if unknown."""

    organization: str
    key: str | None
    count: int

    @property
    def label(self) -> str:
        """The organization and the key for a sentence."""
        return self.organization if self.key is None else f"{self.organization} with key {self.key}"


class OverShare(msgspec.Struct, frozen=True):
    """An organization with refusals beyond its share. requests: all its requests."""

    organization: str
    requests: int
    refused: int


class Failure(msgspec.Struct, frozen=True):
    """Requests of one error code that ended with a 5xx or broke off after their status, without `Refusal`s."""

    code: str
    count: int


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """All requests for one model that went to one pool. pool: empty for requests that were placed on no engine."""

    model: str
    pool: str
    requests: int
    failures: tuple[Failure, ...] = ()


class EnginePage(msgspec.Struct, frozen=True, kw_only=True):
    """The increase of one replica's own counters in the window, over all its requests of every class.

    Counters are sums, so they give only means and shares.
    """

    pool: str
    replica_id: str
    queue_s: float
    prefill_s: float
    requests: int
    """Ended requests."""
    retractions: int


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements between two times."""

    began: datetime
    ended: datetime
    requests: int
    """All requests, whatever their outcome."""
    retried: int = 0
    """Requests that another engine answered after the first one failed; they are not failures."""
    dispersion: float | None = None
    """Variance of arrivals per second over their mean: 1 for a Poisson process, more for bursts."""
    refusals: tuple[Refusal, ...] = ()
    refused: tuple[Refused, ...] = ()
    """The most refused first."""
    over_shares: tuple[OverShare, ...] = ()
    """The most refused first."""
    failures: tuple[Failure, ...] = ()
    targets: tuple[Target, ...] = ()
    """By model and pool; without requests of unknown model."""
    sampled_share: float | None = None
    """Sampled part of the answered requests; None for all. Counts always cover all."""
    tiers: tuple[Slice, ...] = ()
    classes: tuple[Slice, ...] = ()
    """By tier and length."""
    replicas: tuple[Slice, ...] = ()
    """By tier, pool and replica."""
    tenants: tuple[Slice, ...] = ()
    parts: tuple[Part, ...] = ()
    pages: tuple[EnginePage, ...] = ()
    """Counters of the replicas whose engines export them."""

    @property
    def over_share(self) -> int:
        """Requests that were refused for lack of room because their organization exceeded its share."""
        return sum(refusal.count for refusal in self.refusals if refusal.rule == FAIR_SHARE)

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / (self.ended - self.began).total_seconds()


class AuditFinding(msgspec.Struct, frozen=True):
    """A finding of `slipstream tools audit-stream` between a client and the gateway. delay_ms: typical, per event."""

    code: str
    evidence: str
    fix: str
    holds_back: bool
    """Whether it delays events; otherwise it has another cost."""
    delay_ms: float = 0.0
    keeps_out: bool = False
    """Whether it keeps out clients that verify certificates; then nothing else was measured."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Audit of the path between a client and the gateway."""

    findings: tuple[AuditFinding, ...] = ()
    unjudged: str = ""
    """Why delays could not be judged; empty if they were."""


class Burnt(msgspec.Struct, frozen=True, kw_only=True):
    """Bad requests of an objective that share all these labels. pool: empty if there is none or the reader may not see
    it."""

    organization: str
    model: str
    pool: str
    what: str
    """The error code, or one of `LATE`."""
    requests: int


LATE = {
    "late_first_token": "the first token came late",
    "slow_tokens": "tokens came slowly",
    "long_gap": "a gap between two tokens was too long",
}
"""Missed objectives of an answered request, by precedence."""


class Burning(msgspec.Struct, frozen=True, kw_only=True):
    """An objective whose alert fires: its error budget is used too fast over two windows.

    long, short: names of the windows; threshold: the burn rate that both exceed; counted, bad: of the long window.
    """

    tier: Tier
    length: LengthClass
    long: str
    short: str
    threshold: float
    counted: int
    bad: int
    looked_at: int
    """Bad requests that `burnt` counts: the newest, or all."""
    burnt: tuple[Burnt, ...]
    """The largest group first."""

    @property
    def label(self) -> str:
        """The labels for a sentence, such as `chat, short`."""
        return f"{self.tier}, {self.length}"

    @property
    def told(self) -> str:
        """The sentence of evidence."""
        share = self.bad / self.counted if self.counted else 0.0
        return (
            f"{self.bad:,} of {self.counted:,} requests of {self.label} prompts ({share:.2%}) broke the objective in "
            f"{self.long}: the error budget burns at more than {self.threshold:g} times the allowed rate, "
            f"over {self.long} and still over {self.short}."
        )


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a diagnosis. before: a healthy earlier window; None without one."""

    now: Window
    before: Window | None = None
    burning: tuple[Burning, ...] = ()
    """Objectives whose alerts fire now."""
    audit: Audit | None = None
    """None if the path to the client was not audited."""


def same(slices: Iterable[Slice], wanted: Slice) -> Slice | None:
    """The slice with the same labels."""
    return next((each for each in slices if _labels(each) == _labels(wanted)), None)


def _labels(one: Slice) -> tuple[object, ...]:
    return one.tier, one.length, one.pool, one.replica_id, one.organization
