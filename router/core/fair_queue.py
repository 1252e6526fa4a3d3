"""Orders a pool's waiting requests by class, fair shares of tenants, projects and length classes, and deadlines.

    higher priority
      └─ the step of tenants, and of their projects, with the fewest tokens for their shares
           └─ requests that can still start in time, before requests that cannot
                └─ in the step, the tenant with the fewest tokens, then its project with the fewest
                     └─ the length class (tier × prompt length) with the fewest tokens
                          └─ the request that must start first

All three "fewest tokens" are virtual token counters after Sheng et al. 2024 (VTC, arXiv 2401.00588). A grant is charged
with its expected tokens, and corrected at its end. The counter of a returning tenant is raised to the least of the
waiting tenants' counters, so the counters of two waiting tenants differ by at most about two of the largest grants. A
step has the same width: promises order only requests of tenants with about the same tokens. If promises came before
turns, a request that missed its promise would wait for every new request of a tenant that holds all slots. Length
classes share by their number of requests, because every request has a right to the same part of a full pool. By
deadlines alone, long prompts, which may wait longest, would take the time that short ones need.

Requests that yield (`contracts.service_class`) have their own accounts and length class: they are excluded from all
shares of other requests, and take no turn of their tenant.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from contracts.lease import LeaseRequest
from contracts.service_class import yields
from router.core.decayed_sum import DecayedSum
from router.core.state import QueuedRequest

OUTPUT_WEIGHT = 2.0
"""A generated token costs about as much as two prompt tokens (weights of the VTC paper)."""
LOWEST = -(2**31)
ASKS_KEPT = 0.999
"""Decay per request: about the last thousand decide the share of a full pool that a length class may claim."""
ACTIVE_S = 10.0
"""Time after its last request for which a tenant counts when the pool is divided."""
OVER_SHARE = 1.5
"""A tenant that holds this many times its fair part leaves the rest of the pool to the others."""
GIVEN_LATELY_S = 60.0
"""Age from which grants hardly count in a tenant's part of recent grants."""
STEP_GRANTS = 2.0
"""Width of a step in grants; the counters of waiting tenants differ by as much anyway. Within a step, requests that are
in time go first, because with many equal tenants, turns alone would serve all of them too late."""
STEP_LEARNT = 0.05
"""Weight of a new grant in the mean size of grants."""
FIRST_STEP = 100.0
IDLE_LIMIT = 4_096
"""Number of remembered tenants above which idle ones, which neither wait nor hold leases, are dropped."""
IDLE_PROJECTS = 64
"""Number of a tenant's remembered projects above which idle ones are dropped."""
YIELDING = "yielding:"
YIELDING_LENGTH = -1
"""Length class of requests that yield."""


def account_of(ask: LeaseRequest) -> str:
    """The name of the tenant account of a request."""
    return YIELDING + ask.organization_id if yields(ask.priority) else ask.organization_id


class Account(msgspec.Struct, eq=False):
    """Token counters of a tenant, or of one of its projects."""

    name: str
    counter: float = 0.0
    """Granted tokens divided by the share; output tokens count double."""
    share: float = 1.0
    waiting: int = 0
    growth_tokens: int = 0
    """Expected response tokens of its live leases, with which its counter was charged."""

    @property
    def settled(self) -> float:
        """The counter without expected responses, to which the counter of a returning tenant is raised. If it were
        raised to the full counter, the returning tenant would rank after one that holds all slots as soon as a response
        ends early."""
        return self.counter - OUTPUT_WEIGHT * self.growth_tokens / self.share

    def comes_back(self, others: Iterable[Account], level: float) -> None:
        """Raise the counter of an account that waits again, so that it has no credit. others: the waiting accounts of
        its kind. level: the start value if there are no others."""
        self.counter = max(self.counter, min((other.settled for other in others), default=level))


class Project(Account, eq=False):
    """One project of a tenant."""


class Tenant(Account, eq=False):
    """One tenant in one pool."""

    leases: int = 0
    waiting_tokens: int = 0
    """Tokens of the waiting requests, as their leases would hold them."""
    held_tokens: int = 0
    """Tokens of the live leases."""
    last_asked: float = 0.0
    given_lately: DecayedSum = msgspec.field(default_factory=lambda: DecayedSum(GIVEN_LATELY_S))
    """Recently granted tokens, weighted as in the counter, regardless of the share."""
    projects: dict[str, Project] = {}
    """Projects that wait, or were served recently."""
    project_level: float = 0.0
    """The largest `settled` of its projects when they were served."""

    @property
    def yields(self) -> bool:
        """Whether this is the account of requests that yield to all tenants."""
        return self.name.startswith(YIELDING)

    def project(self, name: str) -> Project:
        """A project's account, created if it does not exist."""
        project = self.projects.get(name)
        if project is None:
            if len(self.projects) > IDLE_PROJECTS:
                self.projects = {key: each for key, each in self.projects.items() if each.waiting or each.growth_tokens}
            project = self.projects[name] = Project(name)
        return project

    @property
    def demand_tokens(self) -> int:
        """Tokens of running and waiting requests."""
        return self.held_tokens + self.waiting_tokens

    @property
    def demand(self) -> int:
        """Number of leases and waiting requests."""
        return self.leases + self.waiting


class Line(msgspec.Struct, eq=False):
    """One project's requests of one class; in each length class, the request that must start first is in front."""

    tenant: Tenant
    project: Project
    asks: dict[int, list[tuple[float, int, QueuedRequest]]] = {}


class _LengthClass(msgspec.Struct, eq=False):
    """Prompts of one tier and length in one pool."""

    counter: float = 0.0
    waiting: int = 0
    asks: float = 1.0
    """Decayed number of recent requests, which is the weight of this length class."""


class FairQueue:
    """The queue of one pool. Its callers bound its length."""

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}
        """Tenants that wait, hold leases, or were active recently."""
        self._lines: dict[int, dict[tuple[str, str], Line]] = {}
        """Lines by class, then by tenant and project."""
        self._length_classes: dict[int, _LengthClass] = {}
        self._members: dict[tuple[str, str], QueuedRequest] = {}
        # the key includes the gateway, because lease ids are unique only within one gateway
        self._recent: OrderedDict[str, Tenant] = OrderedDict()
        """Tenants with recent requests, the least recent first."""
        self._recent_shares = 0.0
        self._busy: dict[str, Tenant] = {}
        """Tenants that hold leases or wait, except yielding ones."""
        self.held_tokens = 0
        """Tokens of all tenants' live leases, except yielding ones."""
        self.waiting_tokens = 0
        """Tokens of all waiting requests, except yielding ones."""
        self._given_lately = DecayedSum(GIVEN_LATELY_S)
        """Recently granted tokens of all tenants, except yielding ones."""
        self._level = 0.0
        """The largest `settled` of the tenants when they were served."""
        self._arrivals = 0
        self._step_tokens = FIRST_STEP
        """Recent tokens of `STEP_GRANTS` grants, divided by their tenants' shares."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def highest(self) -> int:
        """The highest class of a waiting request."""
        return max(self._lines, default=LOWEST)

    def waits(self, priority: int) -> bool:
        """Whether a request waits that yields like this class, or like this class does not."""
        return any(yields(each) is yields(priority) for each in self._lines)

    @property
    def promised(self) -> int:
        """Number of waiting requests that do not yield."""
        return sum(tenant.waiting for tenant in self._busy.values())

    @property
    def contended_by_several(self) -> bool:
        """Whether more than one tenant waits."""
        return len(self._waiting_names()) > 1

    def __iter__(self) -> Iterator[QueuedRequest]:
        """All waiting requests, in no particular order; safe against removals."""
        return iter(list(self._members.values()))

    def tenant(self, name: str) -> Tenant:
        """A tenant's account, created if it does not exist."""
        tenant = self.tenants.get(name)
        if tenant is None:
            if len(self.tenants) >= IDLE_LIMIT:
                self._forget_idle()
            tenant = self.tenants[name] = Tenant(name)
        return tenant

    @property
    def active(self) -> Mapping[str, Tenant]:
        """Tenants with a request within `ACTIVE_S`, by name."""
        return self._recent

    @property
    def active_shares(self) -> float:
        """Sum of the active tenants' shares."""
        return self._recent_shares

    def contested(self, now: float) -> bool:
        """Whether a tenant that does not yield was active recently."""
        latest = next(reversed(self._recent.values()), None)
        return latest is not None and latest.last_asked >= now - ACTIVE_S

    def asked(self, name: str, share: float, now: float, length_class: int = 0) -> Tenant:
        """Note a tenant's request, whether or not it has to wait."""
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
        """Whether other tenants are active and this one holds far more than its part of the granted pool."""
        fair = tenant.share * self.held_tokens * OVER_SHARE
        if tenant.yields:
            return False
        return len(self._recent) > 1 and tenant.held_tokens * self._recent_shares > fair

    def over_share_names(self) -> set[str]:
        """The waiting tenants that hold more than their share."""
        return {name for name in self._waiting_names() if self.over_share(self.tenants[name])}

    def entitled(self) -> dict[str, int]:
        """For each waiting tenant, the number of its requests that would have a slot if slots were divided fairly.
        Tenants without such requests are left out.

        A tenant may have one more lease as long as another tenant then still has as many for its share. All its
        requests may have slots if, without one other tenant, all requests would have slots.
        """
        busy = list(self._busy.values())
        leases, demand = sum(tenant.leases for tenant in busy), sum(tenant.demand for tenant in busy)
        fullest = heapq.nlargest(2, busy, key=lambda tenant: (tenant.leases - 1) / tenant.share)
        neediest = heapq.nlargest(2, busy, key=lambda tenant: tenant.demand)
        entitled = {}
        for tenant in busy:
            if not tenant.waiting or len(busy) < 2:
                continue
            full = fullest[fullest[0] is tenant]
            asks = int((full.leases - 1) / full.share * tenant.share) - tenant.leases
            if demand - neediest[neediest[0] is tenant].demand <= leases:
                asks = tenant.waiting
            if asks > 0:
                entitled[tenant.name] = asks
        return entitled

    def parts(self, now: float) -> dict[str, float]:
        """For each waiting tenant, except yielding ones, its recent grants relative to its share of all recent grants:
        1 for exactly its share, and before any grant."""
        waiting = [tenant for tenant in map(self.tenants.__getitem__, self._waiting_names()) if not tenant.yields]
        given, shares = self._given_lately.at(now), self._recent_shares
        shares += sum(tenant.share for tenant in waiting if tenant.name not in self._recent)
        if given <= 0:
            return dict.fromkeys((tenant.name for tenant in waiting), 1.0)
        return {
            tenant.name: max(tenant.given_lately.at(now), 0.0) * shares / (tenant.share * given) for tenant in waiting
        }

    def holds(self, name: str, leases: int, tokens: int, growth_tokens: int = 0, project_id: str = "") -> None:
        """Change a tenant's leases and their tokens; negative values reduce them. growth_tokens: tokens of expected
        responses that were charged to it."""
        tenant = self.tenant(name)
        project = tenant.project(project_id)
        tenant.leases += leases
        tenant.held_tokens += tokens
        tenant.growth_tokens += growth_tokens
        project.growth_tokens += growth_tokens
        if not tenant.yields:
            self.held_tokens += tokens
        self._note_busy(tenant)

    def add(self, waiting: QueuedRequest) -> None:
        """Add a request to its line."""
        ask = waiting.ask
        tenant = self.tenant(account_of(ask))
        if not tenant.waiting:
            backlogged = (each for each in self.tenants.values() if each.waiting and each.yields is tenant.yields)
            tenant.comes_back(backlogged, 0.0 if tenant.yields else self._level)
        tenant.waiting += 1
        project = tenant.project(ask.project_id)
        project.share = ask.project_share if ask.project_share > 0 else 1.0
        if not project.waiting:
            project.comes_back((each for each in tenant.projects.values() if each.waiting), tenant.project_level)
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
        lines = self._lines.setdefault(ask.priority, {})
        line = lines.get((tenant.name, project.name))
        if line is None:
            line = lines[tenant.name, project.name] = Line(tenant, project)
        self._arrivals += 1
        waiting.number = self._arrivals
        bisect.insort(line.asks.setdefault(waiting.length_class, []), (waiting.start_by, waiting.number, waiting))
        self._members[waiting.session.gateway_id, ask.lease_id] = waiting

    def remove(self, waiting: QueuedRequest) -> None:
        """Remove a request from its line, at any position."""
        ask = waiting.ask
        del self._members[waiting.session.gateway_id, ask.lease_id]
        lines = self._lines[ask.priority]
        key = account_of(ask), ask.project_id
        line = lines[key]
        asks = line.asks[waiting.length_class]
        del asks[bisect.bisect_left(asks, (waiting.start_by, waiting.number))]
        line.tenant.waiting -= 1
        line.project.waiting -= 1
        self._count(line.tenant, -ask.tokens)
        self._length_classes[waiting.length_class].waiting -= 1
        if not asks:
            del line.asks[waiting.length_class]
            if not line.asks:
                del lines[key]
                if not lines:
                    del self._lines[ask.priority]

    def turns(self, now: float) -> Iterator[Iterator[QueuedRequest]]:
        """All requests in the order of turns, in groups of one project's requests of one class. Valid until the queue
        or a counter changes."""
        for priority in sorted(self._lines, reverse=True):
            lines = list(self._lines[priority].values())
            if len(lines) == 1:
                yield from map(iter, self._asks(lines[0], now))
                continue
            lines.sort(key=self._turn)
            for _, alike in itertools.groupby(lines, key=self._step):
                halves = [self._asks(line, now) for line in alike]
                yield from (in_time for in_time, _ in halves)
                yield from (late for _, late in halves)

    def in_order(self, now: float) -> Iterator[QueuedRequest]:
        """All requests in the order of turns."""
        return itertools.chain.from_iterable(self.turns(now))

    def _asks(self, line: Line, now: float) -> tuple[Iterator[QueuedRequest], Iterator[QueuedRequest]]:
        """A line's requests that can still start in time, and its requests that cannot."""
        by_length = [line.asks[key] for key in sorted(line.asks, key=self._length_turn)]
        cuts = [bisect.bisect_left(asks, (now,)) for asks in by_length]
        in_time = (entry[2] for asks, cut in zip(by_length, cuts, strict=True) for entry in asks[cut:])
        late = (entry[2] for asks, cut in zip(by_length, cuts, strict=True) for entry in asks[:cut])
        return in_time, late

    def _step(self, line: Line) -> tuple[int, int]:
        """The steps of a line's tenant and project."""
        return int(line.tenant.counter / self._step_tokens), int(line.project.counter / self._step_tokens)

    def _turn(self, line: Line) -> tuple[tuple[int, int], float, str, float, str]:
        """Sort key of the lines of a class; the smallest goes first."""
        return self._step(line), line.tenant.counter, line.tenant.name, line.project.counter, line.project.name

    def _length_turn(self, length_class: int) -> tuple[float, int]:
        return self._length_classes[length_class].counter, length_class

    def last(self) -> QueuedRequest | None:
        """The request to shed first: in the lowest class, the request that may start latest of the tenant with the most
        waiting requests for its share."""
        if not self._lines:
            return None
        line = max(self._lines[min(self._lines)].values(), key=_excess)
        return line.asks[max(line.asks, key=self._length_turn)][-1][2]

    def ahead_of(self, waiting: QueuedRequest) -> int:
        """Number of turns before one more request like this one gets its turn, if shares are fair. Before one that
        yields, only turns of others that yield count; see `promised`."""
        ahead, name, yielding = 0, account_of(waiting.ask), yields(waiting.ask.priority)
        others, lengths = Counter[str](), Counter[int]()
        for priority, lines in self._lines.items():
            for (tenant, _), line in lines.items():
                if priority > waiting.ask.priority and (not yielding or yields(priority)):
                    ahead += sum(map(len, line.asks.values()))
                elif priority == waiting.ask.priority and tenant != name:
                    others[tenant] += sum(map(len, line.asks.values()))
                elif priority == waiting.ask.priority:
                    lengths.update({length: len(asks) for length, asks in line.asks.items()})
        same_length = lengths.pop(waiting.length_class, 0)
        own = same_length + sum(min(asks, same_length + 1) for asks in lengths.values())
        return ahead + own + sum(min(asks, own + 1) for asks in others.values())

    def charge(
        self,
        tenant: Tenant,
        length_class: int,
        prompt_tokens: float,
        output_tokens: float,
        now: float,
        project_id: str = "",
    ) -> float:
        """Charge tokens; negative values refund them. Returns the change of the tenant's counter."""
        tokens = prompt_tokens + OUTPUT_WEIGHT * output_tokens
        if not tenant.yields:
            tenant.given_lately.add(tokens, now)
            self._given_lately.add(tokens, now)
        tenant.counter += tokens / tenant.share
        project = tenant.project(project_id)
        project.counter += tokens / project.share
        account = self._length_classes.setdefault(length_class, _LengthClass())
        account.counter += tokens / max(account.asks, 1.0)
        return tokens / tenant.share

    def served(self, tenant: Tenant, project_id: str = "", worth: float = 0.0) -> None:
        """Note the turn of this tenant and project. worth: the change of its counter."""
        tenant.project_level = max(tenant.project_level, tenant.project(project_id).settled)
        if not tenant.yields:
            self._level = max(self._level, tenant.settled)
        self._step_tokens += STEP_LEARNT * (STEP_GRANTS * worth - self._step_tokens)

    def _waiting_names(self) -> set[str]:
        return {name for lines in self._lines.values() for name, _ in lines}

    def _note_busy(self, tenant: Tenant) -> None:
        if tenant.yields:
            return
        if tenant.demand:
            self._busy[tenant.name] = tenant
        else:
            self._busy.pop(tenant.name, None)

    def _count(self, tenant: Tenant, tokens: int) -> None:
        tenant.waiting_tokens += tokens
        if not tenant.yields:
            self.waiting_tokens += tokens
        self._note_busy(tenant)

    def _forget_idle(self) -> None:
        idle = [tenant for tenant in self.tenants.values() if not tenant.demand]
        for tenant in sorted(idle, key=lambda each: each.last_asked)[: len(idle) // 2 + 1]:
            del self.tenants[tenant.name]
            if self._recent.pop(tenant.name, None) is not None:
                self._recent_shares -= tenant.share


def _excess(line: Line) -> tuple[float, float, str, float, str]:
    """Sort key of the lines of a class; the largest loses a request first."""
    tenant, project = line.tenant, line.project
    return tenant.waiting / tenant.share, tenant.counter, tenant.name, project.waiting / project.share, project.name
