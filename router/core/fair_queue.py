"""Who waits for a pool, and in which order: class, fair shares of length classes, of tenants, deadlines.

    higher priority
      └─ those who can still be in time, before those who cannot
           └─ the length class (tier × prompt length) that has been given the fewest tokens
                └─ the tenant that has been given the fewest tokens for its share
                     └─ its project that has been given the fewest tokens for its own
                          └─ the ask that must start first

All three "fewest tokens" are virtual token counters after Sheng et al. 2024 (VTC, arXiv 2401.00588): charged with what
a grant is expected to use, corrected when it ends, lifted to the least of the waiting when somebody comes back. Between
two tenants of a length class that both wait, tokens given differ by at most twice the largest grant. Length classes
share likewise, by how many asks each has: every ask has a right to the same part of a full pool. By deadlines alone
long prompts, which may wait longest, would in the end use up what short ones need.

What yields (`contracts.service_class`) has accounts of its own, and a length class: it is in nothing that is divided
among the others, and takes no turn of its tenant's.
"""

from __future__ import annotations

import bisect
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping

import msgspec

from contracts.lease import LeaseRequest
from contracts.service_class import yields
from router.core.decayed_sum import DecayedSum
from router.core.state import QueuedRequest

OUTPUT_WEIGHT = 2.0
"""A generated token costs about as much as two of a prompt (weights of the VTC paper)."""
LOWEST = -(2**31)
ASKS_KEPT = 0.999
"""Per ask: about the last thousand decide what part of a full pool a length class has a right to."""
ACTIVE_S = 10.0
"""A tenant that has asked within this time counts when the pool is divided."""
OVER_SHARE = 1.5
"""Holding this many times its fair part, a tenant leaves the rest of the pool to the others."""
GIVEN_LATELY_S = 60.0
"""What was given longer ago hardly counts in a tenant's part of what was given lately."""
IDLE_LIMIT = 4_096
"""Tenants remembered that neither wait nor hold anything."""
IDLE_PROJECTS = 64
"""Projects of a tenant remembered that do not wait."""
YIELDING = "yielding:"
YIELDING_LENGTH = -1
"""Length class of what yields."""


def account_of(ask: LeaseRequest) -> str:
    """The name of its tenant's account."""
    return YIELDING + ask.organization_id if yields(ask.priority) else ask.organization_id


class Project(msgspec.Struct, eq=False):
    """One project of a tenant."""

    name: str
    counter: float = 0.0
    """As of a tenant."""
    share: float = 1.0
    waiting: int = 0


class Tenant(msgspec.Struct, eq=False):
    """One tenant in one pool."""

    name: str
    counter: float = 0.0
    """Tokens given, divided by its share; output tokens count double."""
    share: float = 1.0
    waiting: int = 0
    waiting_tokens: int = 0
    """Of the asks that wait, as a lease of each would hold them."""
    held_tokens: int = 0
    """Of its live leases."""
    last_asked: float = 0.0
    given_lately: DecayedSum = msgspec.field(default_factory=lambda: DecayedSum(GIVEN_LATELY_S))
    """Tokens, as its counter counts them, whatever its share."""
    projects: dict[str, Project] = {}
    """Those that wait, or were served lately."""
    project_level: float = 0.0
    """Counter of the project served last: where a new one begins."""

    @property
    def yields(self) -> bool:
        """It is the account of what yields to all tenants."""
        return self.name.startswith(YIELDING)

    def project(self, name: str) -> Project:
        """Its account, opened when there is none."""
        project = self.projects.get(name)
        if project is None:
            if len(self.projects) > IDLE_PROJECTS:
                self.projects = {key: one for key, one in self.projects.items() if one.waiting}
            project = self.projects[name] = Project(name, self.project_level)
        return project

    @property
    def demand_tokens(self) -> int:
        """Of what runs and what waits."""
        return self.held_tokens + self.waiting_tokens


class _Line(msgspec.Struct, eq=False):
    """One project's asks of one class and length class, those that must start first in front."""

    tenant: Tenant
    project: Project
    asks: list[tuple[float, int, QueuedRequest]] = []

    @property
    def turn(self) -> tuple[float, str, float, str]:
        """Among the lines of its length class, the smallest goes first."""
        return self.tenant.counter, self.tenant.name, self.project.counter, self.project.name


class _LengthClass(msgspec.Struct, eq=False):
    """Prompts of one tier and length in one pool."""

    counter: float = 0.0
    waiting: int = 0
    asks: float = 1.0
    """How many asks lately: its weight among the length classes."""


class FairQueue:
    """One pool's. Bounded by whoever adds."""

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}
        """Those that wait, hold leases, or were here lately."""
        self._lines: dict[int, dict[int, dict[tuple[str, str], _Line]]] = {}
        """By class, by length class, by tenant and project."""
        self._length_classes: dict[int, _LengthClass] = {}
        self._members: dict[tuple[str, str], QueuedRequest] = {}
        # by gateway too: lease ids are unique within one, the router need not trust them to be beyond
        self._recent: OrderedDict[str, Tenant] = OrderedDict()
        """Those that asked lately, the longest ago first."""
        self._recent_shares = 0.0
        self.held_tokens = 0
        """Of all tenants' live leases, but for those that yield."""
        self.waiting_tokens = 0
        """Of all that wait, likewise."""
        self._given_lately = DecayedSum(GIVEN_LATELY_S)
        """To all tenants, but for those that yield."""
        self._level = 0.0
        """Counter of the tenant served last: where a new one begins."""
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def highest(self) -> int:
        """Class of the highest that wait."""
        return max(self._lines, default=LOWEST)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Everyone, in no particular order; safe against removals."""
        return iter(list(self._members.values()))

    def tenant(self, name: str) -> Tenant:
        """Its account, opened when there is none."""
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = Tenant(name, self._level)
            if len(self.tenants) > IDLE_LIMIT:
                self._forget_idle()
        return tenant

    @property
    def active(self) -> Mapping[str, Tenant]:
        """Those that asked within `ACTIVE_S`, by name."""
        return self._recent

    @property
    def active_shares(self) -> float:
        """Of the active ones together."""
        return self._recent_shares

    def contested(self, now: float) -> bool:
        """Somebody who does not yield was here lately."""
        latest = next(reversed(self._recent.values()), None)
        return latest is not None and latest.last_asked >= now - ACTIVE_S

    def asked(self, name: str, share: float, now: float, length_class: int = 0) -> Tenant:
        """A tenant asks, whether it will have to wait or not."""
        for other in self._length_classes.values():
            other.asks *= ASKS_KEPT
        self._length_classes.setdefault(length_class, _LengthClass()).asks += 1.0
        tenant = self.tenant(name)
        if tenant.yields:
            tenant.last_asked, tenant.share = now, share if share > 0 else 1.0
            return tenant
        recent = self._recent
        if recent.pop(name, None) is not None:
            self._recent_shares -= tenant.share
        tenant.last_asked = now
        tenant.share = share if share > 0 else 1.0
        recent[name] = tenant
        self._recent_shares += tenant.share
        while (oldest := next(iter(recent.values()))).last_asked < now - ACTIVE_S:
            del recent[oldest.name]
            self._recent_shares -= oldest.share
        return tenant

    def over_share(self, tenant: Tenant) -> bool:
        """Others are active, and it holds far more than its part of what the pool has given out."""
        fair = tenant.share * self.held_tokens * OVER_SHARE
        if tenant.yields:
            return False
        return len(self._recent) > 1 and tenant.held_tokens * self._recent_shares > fair

    def over_share_names(self) -> set[str]:
        """Of those that wait, who holds more than its share."""
        names = {name for by_length in self._lines.values() for lines in by_length.values() for name, _ in lines}
        return {name for name in names if self.over_share(self.tenants[name])}

    def parts(self, now: float) -> dict[str, float]:
        """Of those that wait, but for those that yield: what each was given lately, in parts of what its share of all
        that was given would have been. 1: its share, and before anything was given."""
        names = {name for by_length in self._lines.values() for lines in by_length.values() for name, _ in lines}
        waiting = [tenant for tenant in map(self.tenants.__getitem__, names) if not tenant.yields]
        given, shares = self._given_lately.at(now), self._recent_shares
        shares += sum(tenant.share for tenant in waiting if tenant.name not in self._recent)
        if given <= 0:
            return dict.fromkeys((tenant.name for tenant in waiting), 1.0)
        return {
            tenant.name: max(tenant.given_lately.at(now), 0.0) * shares / (tenant.share * given) for tenant in waiting
        }

    def holds(self, name: str, tokens: int) -> None:
        """A tenant's live leases grew by this many tokens, or shrank when negative."""
        tenant = self.tenant(name)
        tenant.held_tokens += tokens
        if not tenant.yields:
            self.held_tokens += tokens

    def add(self, waiting: QueuedRequest) -> None:
        """Stand in line."""
        ask = waiting.ask
        tenant = self.tenant(account_of(ask))
        if not tenant.waiting:
            backlogged = [one.counter for one in self.tenants.values() if one.waiting and one.yields is tenant.yields]
            tenant.counter = max(tenant.counter, min(backlogged, default=tenant.counter))
        tenant.waiting += 1
        project = tenant.project(ask.project_id)
        project.share = ask.project_share if ask.project_share > 0 else 1.0
        if not project.waiting:
            waited = [other.counter for other in tenant.projects.values() if other.waiting]
            project.counter = max(project.counter, min(waited, default=project.counter))
        project.waiting += 1
        self._count(tenant, ask.tokens)
        length_class = self._length_classes.setdefault(waiting.length_class, _LengthClass())
        if not length_class.waiting:
            busy = [
                other.counter
                for length, other in self._length_classes.items()
                if other.waiting and (length == YIELDING_LENGTH) is tenant.yields
            ]
            length_class.counter = max(length_class.counter, min(busy, default=length_class.counter))
        length_class.waiting += 1
        lines = self._lines.setdefault(ask.priority, {}).setdefault(waiting.length_class, {})
        line = lines.get((tenant.name, project.name))
        if line is None:
            line = lines[tenant.name, project.name] = _Line(tenant, project)
        self._arrivals += 1
        waiting.number = self._arrivals
        bisect.insort(line.asks, (waiting.start_by, waiting.number, waiting))
        self._members[waiting.session.gateway_id, ask.lease_id] = waiting

    def remove(self, waiting: QueuedRequest) -> None:
        """Leave the line, wherever it stands."""
        ask = waiting.ask
        del self._members[waiting.session.gateway_id, ask.lease_id]
        by_length = self._lines[ask.priority]
        lines = by_length[waiting.length_class]
        place = account_of(ask), ask.project_id
        line = lines[place]
        del line.asks[bisect.bisect_left(line.asks, (waiting.start_by, waiting.number))]
        line.tenant.waiting -= 1
        line.project.waiting -= 1
        self._count(line.tenant, -ask.tokens)
        self._length_classes[waiting.length_class].waiting -= 1
        if not line.asks:
            del lines[place]
            if not lines:
                del by_length[waiting.length_class]
                if not by_length:
                    del self._lines[ask.priority]

    def in_order(self, now: float) -> Iterator[QueuedRequest]:
        """Everyone, whose turn it is first. Valid until the queue or a counter changes."""
        for priority in sorted(self._lines, reverse=True):
            by_length = self._lines[priority]
            late: list[tuple[_Line, int]] = []
            for key in sorted(by_length, key=lambda key: (self._length_classes[key].counter, key)):
                for line in sorted(by_length[key].values(), key=lambda line: line.turn):
                    cut = bisect.bisect_left(line.asks, (now,))
                    if cut:
                        late.append((line, cut))
                    for _, _, waiting in line.asks[cut:]:
                        yield waiting
            for line, cut in late:
                for _, _, waiting in line.asks[:cut]:
                    yield waiting

    def last(self) -> QueuedRequest | None:
        """Who is shed first: of the lowest class, of the tenant that was given most, the one that can start latest."""
        if not self._lines:
            return None
        by_length = self._lines[min(self._lines)]
        key = max(by_length, key=lambda key: (self._length_classes[key].counter, key))
        line = max(by_length[key].values(), key=lambda line: line.turn)
        return line.asks[-1][2]

    def ahead_of(self, waiting: QueuedRequest) -> int:
        """How many turns pass before one more ask like this gets its own, when shares are fair."""
        ahead = 0
        for priority, by_length in self._lines.items():
            if priority < waiting.ask.priority:
                continue
            if priority > waiting.ask.priority:
                ahead += sum(len(line.asks) for lines in by_length.values() for line in lines.values())
                continue
            own = self._turns(by_length.get(waiting.length_class, {}), account_of(waiting.ask))
            ahead += own
            for key, lines in by_length.items():
                if key != waiting.length_class:
                    ahead += min(sum(len(line.asks) for line in lines.values()), own + 1)
        return ahead

    @staticmethod
    def _turns(lines: dict[tuple[str, str], _Line], name: str) -> int:
        asks: Counter[str] = Counter()
        for (tenant, _), line in lines.items():
            asks[tenant] += len(line.asks)
        own = asks.pop(name, 0)
        return own + sum(min(others, own + 1) for others in asks.values())

    def charge(
        self,
        tenant: Tenant,
        length_class: int,
        prompt_tokens: float,
        output_tokens: float,
        now: float,
        project_id: str = "",
    ) -> None:
        """Tokens given, or taken back when negative."""
        tokens = prompt_tokens + OUTPUT_WEIGHT * output_tokens
        if not tenant.yields:
            tenant.given_lately.add(tokens, now)
            self._given_lately.add(tokens, now)
        tenant.counter += tokens / tenant.share
        project = tenant.project(project_id)
        project.counter += tokens / project.share
        account = self._length_classes.setdefault(length_class, _LengthClass())
        account.counter += tokens / max(account.asks, 1.0)

    def served(self, tenant: Tenant, project_id: str = "") -> None:
        """It was this tenant's turn, and this project's."""
        tenant.project_level = tenant.project(project_id).counter
        if not tenant.yields:
            self._level = tenant.counter

    def _count(self, tenant: Tenant, tokens: int) -> None:
        tenant.waiting_tokens += tokens
        if not tenant.yields:
            self.waiting_tokens += tokens

    def _forget_idle(self) -> None:
        idle = [tenant for tenant in self.tenants.values() if not tenant.waiting and not tenant.held_tokens]
        for tenant in sorted(idle, key=lambda one: one.last_asked)[: len(idle) // 2 + 1]:
            del self.tenants[tenant.name]
            if self._recent.pop(tenant.name, None) is not None:
                self._recent_shares -= tenant.share
