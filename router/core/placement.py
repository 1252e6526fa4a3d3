"""Places a lease request, queues it or refuses it, and serves waiting requests when a slot has become free.

Invariant after every event: no request that is next in turn waits if it could be placed. A new request is placed at
once only if no waiting request could use its slot.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from contracts.errors import ModelNotFound, NoEngine, Overloaded
from contracts.lease import Lease, LeaseRequest, prefill_id
from contracts.pooling import Task
from contracts.service_class import yields
from router.config import RouterConfig, slo_of
from router.core import load_shedding, pairs, unread
from router.core.candidates import PlacementContext
from router.core.decisions import Decision, Granted, Refused
from router.core.excess import in_excess
from router.core.fair_queue import YIELDING_LENGTH, account_of
from router.core.fleet import Fleet
from router.core.latency_model import pairs_of
from router.core.policy import Policy
from router.core.pool import PoolState
from router.core.reasons import FOR_PROMPTS, Reason
from router.core.record import RecordBook
from router.core.replica import Replica
from router.core.shed_rate import ShedRates
from router.core.split import SplitChoice
from router.core.split_costs import costs_of
from router.core.state import LiveLease, QueuedRequest, Session

NEVER = float("inf")
SOON_S = 0.001
SHORT = 0.25
"""Share of a promised time per token below which a prompt is placed at once, because no stream notices its pause."""
CREDIT_S = 1.0
"""Seconds of prefill per replica for which streams make up without any request being shed."""
ON_CREDIT_S = 0.02
OVER_SHARE = "Your organization requests more than its share; within its share there would have been room."
TRIES = 24
"""Requests tried in one pass before the router assumes that none fits, which bounds the work of one event."""
TRIES_OF_ONE = 8
"""Limit for one tenant while others wait: its requests that fit nowhere must not hide another tenant's that fit."""


class Placer:
    """Owns the steps from a lease request to its answer."""

    def __init__(self, config: RouterConfig, policy: Policy, fleet: Fleet, records: RecordBook) -> None:
        self.config = config
        self.policy = policy
        self.fleet = fleet
        self.records = records
        self.sheds = ShedRates()
        self.deadlines: list[tuple[float, int, QueuedRequest]] = []
        self._decisions = 0
        """The number of the last placement or queue entry."""

    def place_or_queue(self, waiting: QueuedRequest, now: float, out: list[Decision]) -> None:
        """Place a request or queue it. It must not be in a queue."""
        ask = waiting.ask
        pool = self._side(self.fleet.pool_for(waiting), waiting, now)
        if ask.idle_replica:
            self._place_idle(pool, waiting, now, out)
            return
        # a request for vectors or scores has no first token, so nothing is promised for it, nor learnt from it
        slo = slo_of(self.config.slos, ask.tier, ask.prompt_tokens) if waiting.model.task is Task.TEXT else None
        if yields(ask.priority):  # it has no promise, and the promises of others hold it back
            waiting.tpot_slo_s, waiting.length_class = slo.tpot_s if slo else 0.0, YIELDING_LENGTH
        elif slo is not None:
            waiting.ttft_slo_s, waiting.tpot_slo_s = slo.ttft_s, slo.tpot_s
            waiting.length = slo.prompt_tokens
            waiting.length_class = 0 if slo.tpot_s else slo.prompt_tokens
        pool.queue.asked(account_of(ask), ask.share, now, waiting.length_class)
        # no slot has become free since the waiting requests were tried, so they cannot use a free one; a new one may
        if waiting.ttft_slo_s and waiting.tpot_slo_s and pool.retry_reservations.claim(ask, now):
            waiting.returned = True
        first = ask.priority >= pool.queue.highest and (
            waiting.returned or not (waiting.tpot_slo_s and len(pool.queue))
        )
        may = pool.free and first and self._open(pool, waiting, now)
        if may and self._place(pool, waiting, now, out):
            return
        if ask.adapter and not pool.max_adapters:
            self.refuse_adapter(pool, waiting, now, out)
        elif not self.hopeful(pool, ask):
            self.refuse_no_engine(pool, waiting, now, out)
        elif waiting.deadline_at <= now:
            self.refuse_late(pool, waiting, now, out)
        else:
            self._queue(pool, waiting, now, out)
            if waiting.tpot_slo_s and waiting.pool and not yields(ask.priority):
                self._shed_load(pool, waiting.tpot_slo_s, now, out)
                self.serve(pool, now, out)

    def _side(self, pool: PoolState, waiting: QueuedRequest, now: float) -> PoolState:
        """The pool itself or the decode pool of its pair, whichever is cheaper or the only one that can serve."""
        ask = waiting.ask
        if not pool.links.split or ask.adapter or ask.idle_replica:
            return pool
        decode = self.fleet.pools[pool.links.split]
        prefill = self.fleet.pools[decode.links.prefill]
        whole_ready, pair_ready = pool.ready(ask), decode.ready(ask) and prefill.ready(ask)
        if whole_ready and pair_ready:
            costs = costs_of(self.config, pool, decode, prefill, waiting, now)
            if costs is None:
                choice = SplitChoice(False, "the prefill speed of the engines is not known yet")
            else:
                choice = pool.split_rule.choose(ask.prompt_tokens, costs)
        elif pair_ready or (not whole_ready and self.hopeful(decode, ask) and not self.hopeful(pool, ask)):
            choice = SplitChoice(True, f"no engine of {pool.name} is usable")
        else:
            choice = SplitChoice(False, "the pair is not usable")
        waiting.split = choice
        return decode if choice.split else pool

    def _place_idle(self, pool: PoolState, waiting: QueuedRequest, now: float, out: list[Decision]) -> None:
        """Place background work on an idle replica, or refuse it; no client waits for it."""
        if len(pool.queue) or not self._place(pool, waiting, now, out):
            connection, ask = waiting.session.connection, waiting.ask
            if connection is not None:
                reason = f"{ask.model}: {Reason.NOT_IDLE.sentence}."
                out.append(Refused(connection, ask.lease_id, Overloaded.code, reason, None, Reason.NOT_IDLE))

    def serve(self, pool: PoolState | None, now: float, out: list[Decision]) -> None:
        """Grant slots that may have become free to the requests whose turn it is."""
        if pool is None:
            return
        if pool.links.decode:  # requests wait for the whole pair, in the decode pool
            self.serve(self.fleet.pools.get(pool.links.decode), now, out)
            return
        pool.open_at = NEVER
        tried: dict[QueuedRequest, str] = {}
        while len(pool.queue) and pool.free and self._serve_one(pool, tried, now, out):
            pass

    def _serve_one(self, pool: PoolState, tried: dict[QueuedRequest, str], now: float, out: list[Decision]) -> bool:
        """Grant a slot to the first request in turn that fits. The grant changes counters, so the caller must compute
        the turns again. tried: requests of this event that fit nowhere, with the names of their accounts."""
        limit = TRIES_OF_ONE if pool.queue.contended_by_several else TRIES
        tries = Counter(tried.values())
        for asks in pool.queue.turns(now):
            for waiting in asks:
                name = account_of(waiting.ask)
                if tries[name] >= limit:
                    break
                if waiting in tried:
                    continue
                if self._open(pool, waiting, now) and self._place(pool, waiting, now, out, leave=True):
                    priority = waiting.ask.priority
                    if waiting.asked_at < now or pool.queue.waits(priority):  # otherwise it passed without a wait
                        pool.waits_of(priority).served(now)
                    return True
                tried[waiting] = name
                tries[name] += 1
                if len(tried) >= TRIES:
                    return False
        return False

    def _open(self, pool: PoolState, waiting: QueuedRequest, now: float) -> bool:
        """Whether the streams can bear another prompt now, or an engine has none. If not, sets `pool.open_at`."""
        if not waiting.tpot_slo_s or pool.idle or waiting.returned or pool.unknown:
            return True
        tokens, running = waiting.ask.prompt_tokens, pool.leases // max(pool.usable, 1)
        if pool.latency_model.work_s(tokens, pairs_of(tokens, tokens), running) <= waiting.tpot_slo_s * SHORT:
            return True
        over_share = pool.queue.over_share(pool.queue.tenant(account_of(waiting.ask)))
        yielding = yields(waiting.ask.priority)
        opens_in_s = pool.pacing.opens_in_s(
            waiting.tpot_slo_s, pool.usable, pool.leases, now, over_share=over_share, yields=yielding
        )
        if opens_in_s > 0 and waiting.pool and waiting.ttft_slo_s and not over_share:
            # requests that remain after the largest were shed start when they are due, even on credit
            opens_in_s = min(opens_in_s, max(load_shedding.begin_by(waiting) - ON_CREDIT_S - now, 0.0))
        if opens_in_s > 0:
            pool.open_at = min(pool.open_at, now + opens_in_s + SOON_S)
            waiting.why = Reason.TPOT
        return opens_in_s <= 0

    def unqueue(self, waiting: QueuedRequest) -> None:
        """Remove a request from the queue in which it waits."""
        if waiting.pool:
            self.fleet.pools[waiting.pool].queue.remove(waiting)
            waiting.pool = ""
        waiting.session.waiting.pop(waiting.ask.lease_id, None)

    def hold(self, session: Session, live: LiveLease, now: float) -> Replica:
        """Count a granted lease in its session and on its replica."""
        session.leases[live.lease_id] = live
        replica = self.fleet.held(live.replica_id)
        if live.waits_for_first_token and not replica.prefilling:
            replica.progress_at = now
        replica.hold((session.gateway_id, live.lease_id), live)
        pool = self.fleet.pools.get(replica.pool)
        if pool is not None and replica.slot >= 0:
            pool.leases += 1
            pool.refresh(replica)
        if live.pool and live.ask is not None:
            holding = account_of(live.ask), 1, live.tokens, live.growth_tokens, live.ask.project_id
            self.fleet.pools[live.pool].queue.holds(*holding)
        return replica

    def drop(self, session: Session, live: LiveLease, now: float, read_tokens: int = 0) -> str:
        """Stop counting a lease. Returns the name of the pool in which a slot became free. read_tokens: for a prompt
        without a first token, the tokens that the engine reports as read."""
        del session.leases[live.lease_id]
        if (prefill := session.leases.get(prefill_id(live.lease_id))) is not None:
            self.drop(session, prefill, now)
        replica = self.fleet.held(live.replica_id)
        replica.drop((session.gateway_id, live.lease_id), now)
        pool = self.fleet.pools.get(replica.pool)
        if pool is not None and live.ask is not None:
            pool.avoidance.ended(live.ask.organization_id, replica.id, live.lease_id)
        if pool is not None and replica.slot >= 0:
            pool.govern(now)
            pool.leases -= 1
            if live.waits_for_first_token:
                unread.take_back(pool, replica, live, read_tokens, now)
            pool.refresh(replica)
            if not pool.leases:
                pool.pacing.forgive()
        if live.pool and live.ask is not None:
            holding = account_of(live.ask), -1, -live.tokens, -live.growth_tokens, live.ask.project_id
            self.fleet.pools[live.pool].queue.holds(*holding)
        self.fleet.forget_if_over(replica)
        return replica.pool

    def _place(
        self, pool: PoolState, waiting: QueuedRequest, now: float, out: list[Decision], leave: bool = False
    ) -> bool:
        """Grant the request a replica if one can take it."""
        session = waiting.session
        if session.connection is None:
            return False
        placed = pairs.answer_of(waiting) if pool.links.prefill else waiting
        ask = placed.ask
        pool.govern(now)
        tenant, yielding = pool.queue.tenant(account_of(ask)), yields(ask.priority)
        context = PlacementContext(placed, pool, tenant, self.config.kv_reserve, now, self.config.adapter_load_s)
        replica = self.policy.choose(context)
        if replica is None:
            waiting.why = context.why or Reason.PLACES_TAKEN
            return False
        prefill: PlacementContext | None = None
        prefill_replica: Replica | None = None
        if pool.links.prefill:
            prefill = pairs.prefill_context(self.config, self.fleet.pools[pool.links.prefill], waiting, now)
            prefill_replica = self.policy.choose(prefill)
            if prefill_replica is None:
                waiting.why = Reason.PREFILL_TAKEN
                return False
        if leave:
            self.unqueue(waiting)
        live = self._chosen(context, replica, now)
        load, evicted = False, None
        if ask.adapter:
            load = not replica.adapters.loaded(ask.adapter)
            evicted = replica.adapters.take(ask.adapter, ask.organization_id, now)
        engine = replica.engine(waiting.engine_model)
        computing = None if prefill_replica is None else prefill_replica.engine(waiting.engine_model)
        queued_s, evicts = now - waiting.asked_at, "" if evicted is None else evicted.name
        lease = Lease(ask.lease_id, engine, queued_s, load, evicts, computing, no_drafts=pool.no_drafts)
        prefill_name = "" if computing is None else computing.replica_id
        self.records.placed(context, replica, self.policy.name, prefill_name, load, evicted)
        live.lease, live.adapter = lease, ask.adapter
        live.pool, live.length_class = "" if ask.idle_replica else pool.name, waiting.length_class
        live.tpot_slo_s = 0.0 if yielding else waiting.tpot_slo_s
        worth = 0.0
        if not ask.idle_replica:
            charged = live.uncached_tokens, context.growth_tokens, now, ask.project_id
            worth = pool.queue.charge(tenant, waiting.length_class, *charged)
        self._hold(session, context, live, now)
        if prefill is not None and prefill_replica is not None:
            self._hold(session, prefill, self._chosen(prefill, prefill_replica, now), now)
        if not ask.idle_replica:
            pool.queue.served(tenant, ask.project_id, worth)
            over_share = yielding or pool.queue.over_share(tenant)
            pool.pacing.owe(live.work_s, waiting.tpot_slo_s, pool.usable, pool.leases, now, over_share=over_share)
            if not yielding:
                self.sheds.granted(ask.tier.value)
                pool.served.count(waiting.length, True)
        out.append(Granted(session.connection, lease))
        return True

    def _chosen(self, context: PlacementContext, replica: Replica, now: float) -> LiveLease:
        """Count a request, or a pair's half of it, on the chosen replica, and add its prompt to the prompts that the
        engine holds."""
        self._decisions += 1
        replica.chosen = self._decisions
        ask, pool, candidate = context.ask, context.pool, context.candidate(replica)
        live = LiveLease(
            ask.lease_id,
            replica.id,
            tokens=ask.tokens,
            since=now,
            lease=None,
            ask=ask,
            prompt_tokens=ask.prompt_tokens,
            uncached_tokens=candidate.uncached_tokens,
            pairs=candidate.pairs,
            growth_tokens=context.growth_tokens,
            answer_tokens=(answer_tokens := replica.answer_tokens(context.growth_tokens, ask.max_output_tokens)),
            answer_left=answer_tokens,
            overlap_blocks=candidate.overlap_blocks,
            overlap_stamp=pool.index.stamp(context.match, replica.slot) if candidate.overlap_blocks else -1,
            work_ahead_tokens=candidate.ahead_tokens,
            work_ahead_pairs=candidate.ahead_pairs,
            running=candidate.running,
            in_flight=replica.leases + 1,
            trial=replica.breaker.half_open,
            waits_for_first_token=True,
            work_s=context.work_s(replica, candidate),
            read_blocks=unread.read_of(ask, candidate.overlap_blocks, replica),
        )
        if replica.prefilling:
            live.computing_stamp = next(iter(replica.prefilling.values())).index_stamp
        pool.index.hold(replica.slot, context.match)
        live.index_stamp = pool.index.clock
        pool.index.trim(replica.slot, pool.capacity_blocks(replica, self.config.prefix_blocks_per_replica))
        return live

    def _hold(self, session: Session, context: PlacementContext, live: LiveLease, now: float) -> None:
        self.hold(session, live, now)
        context.pool.avoidance.granted(context.ask.organization_id, live.replica_id, live.lease_id)

    def _start_by(self, pool: PoolState, waiting: QueuedRequest) -> float:
        """Latest time at which an engine must get the request. If nothing is promised or known, it is the time of the
        request, so that such requests are served in order of arrival."""
        if not waiting.ttft_slo_s or not pool.latency_model.trusted or pool.unknown:
            return waiting.asked_at
        ask = waiting.ask
        cached = pool.index.match(ask.prefix_hashes).blocks * pool.cache_reports.tokens_per_block
        uncached = max(ask.prompt_tokens - int(cached), 1)
        pairs = pairs_of(uncached, ask.prompt_tokens)
        waiting.work_s = pool.latency_model.work_s(uncached, pairs, 0)
        own_s = pool.latency_model.first_token_s(uncached, pairs, 0)
        return waiting.asked_at + max(waiting.ttft_slo_s - own_s, 0.0)

    def _queue(self, pool: PoolState, waiting: QueuedRequest, now: float, out: list[Decision]) -> None:
        """Queue the request unless it could not be served in time. If the queue is full, refuse a request, of the
        lowest class first."""
        waiting.start_by = self._start_by(pool, waiting)
        full = len(pool.queue) >= self.config.queue_length
        wait_s = pool.wait_s(waiting)
        shedding = waiting.tpot_slo_s and pool.latency_model.trusted and not pool.unknown
        estimator, alone = pool.waits_of(waiting.ask.priority), not pool.queue.waits(waiting.ask.priority)
        in_vain = not shedding and estimator.known and not alone and wait_s > waiting.deadline_at - now
        if full or in_vain:
            last = pool.queue.last() if len(pool.queue) else None
            if last is None or not self._gives_way(pool, last, waiting, full=full, in_vain=in_vain):
                if full:
                    self.refuse_overloaded(pool, waiting, Reason.QUEUE_FULL, now, out)
                else:
                    detail = f"its turn would come in {wait_s:.2g} s, after its deadline"
                    self.refuse_overloaded(pool, waiting, Reason.TURN_TOO_LATE, now, out, detail)
                return
            self.unqueue(last)
            self.refuse_overloaded(pool, last, Reason.OUTRANKED, now, out)
        waiting.pool = pool.name
        if not pool.queue.waits(waiting.ask.priority):
            estimator.filled(now)
        pool.queue.add(waiting)
        waiting.session.waiting[waiting.ask.lease_id] = waiting
        self._decisions += 1
        heapq.heappush(self.deadlines, (waiting.deadline_at, self._decisions, waiting))

    def _shed_load(self, pool: PoolState, tpot_slo_s: float, now: float, out: list[Decision]) -> None:
        """Refuse requests that would keep others from being in time."""
        if not pool.latency_model.trusted or not pool.usable:
            return
        if now < pool.shed_at + len(pool.queue) * load_shedding.PAUSE_S_PER_ASK:
            return
        pool.shed_at = now
        rate = pool.pacing.pay_off(tpot_slo_s, pool.usable, pool.leases, now)
        backlog_s, over_share = pool.pacing.backlog_s(CREDIT_S, pool.usable), pool.queue.over_share_names()
        parts = pool.queue.parts(now)
        promised = [waiting for waiting in pool.queue.in_order(now) if not yields(waiting.ask.priority)]
        spared = self._spared(pool, promised)
        for waiting in load_shedding.given_up(promised, backlog_s, rate, pool.served, now, over_share, parts, spared):
            self.unqueue(waiting)
            self.refuse_overloaded(pool, waiting, Reason.GIVEN_UP, now, out)

    def _spared(self, pool: PoolState, in_order: Iterable[QueuedRequest]) -> set[QueuedRequest]:
        """Requests that wait for a slot or memory rather than prefill, and would have it if slots were divided fairly.
        Giving them up would not help the others."""
        left, spared = pool.queue.entitled(), set[QueuedRequest]()
        for waiting in in_order:
            name = account_of(waiting.ask)
            if left.get(name, 0) > 0:
                left[name] -= 1
                if not pool.free or (waiting.why is not None and waiting.why not in FOR_PROMPTS):
                    spared.add(waiting)
        return spared

    def _gives_way(
        self, pool: PoolState, last: QueuedRequest, newcomer: QueuedRequest, *, full: bool, in_vain: bool
    ) -> bool:
        """Whether the last request in line is refused instead of the new one. in_vain: whether the new one would wait
        past its deadline; a lower class, which is not ahead of it, could not help it then."""
        if last.ask.priority != newcomer.ask.priority:
            return not in_vain and last.ask.priority < newcomer.ask.priority
        theirs, own = (pool.queue.tenant(account_of(waiting.ask)) for waiting in (last, newcomer))
        return full and theirs.waiting / theirs.share > (own.waiting + 1) / own.share

    def hopeful(self, pool: PoolState, ask: LeaseRequest) -> bool:
        """Whether some replica may take the request, now or later."""
        if pool.links.prefill and not self.hopeful(self.fleet.pools[pool.links.prefill], ask):
            return False
        return any(replica.hopeful and replica.suits(ask) for replica in pool.replicas)

    # refusals

    def refuse_no_engine(self, pool: PoolState, waiting: QueuedRequest, now: float, out: list[Decision]) -> None:
        """Refuse a request that no healthy engine serves, or whose engines are all drained."""
        replicas = [replica for replica in pool.replicas if replica.wanted]
        if replicas and all(replica.drained for replica in replicas):
            reason = f"All engines of {waiting.ask.model} are drained: they take no new requests."
        else:
            reason = f"No healthy engine serves {waiting.ask.model} at the moment."
        self._refuse(pool, waiting, NoEngine.code, Reason.NO_ENGINE, reason, self.config.retry_after_s, now, out)

    def refuse_adapter(self, pool: PoolState, waiting: QueuedRequest, now: float, out: list[Decision]) -> None:
        """Refuse a request with an adapter, because no engine of the pool takes adapters."""
        reason = f"The engines of {waiting.ask.model} that this request may use do not support adapters."
        self._refuse(pool, waiting, NoEngine.code, Reason.NO_ADAPTERS, reason, self.config.retry_after_s, now, out)

    def refuse_overloaded(
        self, pool: PoolState, waiting: QueuedRequest, cause: Reason, now: float, out: list[Decision], detail: str = ""
    ) -> None:
        """Refuse a request because the pool is overloaded. detail: text that replaces the cause's sentence."""
        reason = f"{waiting.ask.model} is overloaded: {detail or cause.sentence}."
        yielding = yields(waiting.ask.priority)
        if waiting.tpot_slo_s and not yielding and pool.latency_model.trusted and pool.usable:
            rate = pool.pacing.pay_off(waiting.tpot_slo_s, pool.usable, pool.leases, now)
            drained_in_s = pool.pacing.debt_s / rate
            retry_after_s, kept = pool.retry_reservations.book(waiting.ask, waiting.work_s, rate, drained_in_s, now)
            if kept:
                reason += f" A slot is reserved for this request in {retry_after_s:.2g} s."
        else:
            retry_after_s = pool.waits_of(waiting.ask.priority).return_in_s(pool.wait_s(waiting), now)
        over_share = pool.whole and not yielding and in_excess(pool.queue, waiting.ask.organization_id)
        if over_share:
            reason += f" {OVER_SHARE}"
        self._refuse(pool, waiting, Overloaded.code, cause, reason, retry_after_s, now, out, over_share)

    def refuse_late(self, pool: PoolState, waiting: QueuedRequest, now: float, out: list[Decision]) -> None:
        """Refuse a request whose deadline has passed while it waited."""
        if any(replica.usable for replica in pool.replicas):
            kept_by = f" ({waiting.why.sentence})" if waiting.why else ""
            detail = f"no slot came free within {waiting.ask.deadline_s:.3g} s{kept_by}"
            self.refuse_overloaded(pool, waiting, waiting.why or Reason.PLACES_TAKEN, now, out, detail)
        else:
            self.refuse_no_engine(pool, waiting, now, out)

    def refuse_unknown(self, connection: int, ask: LeaseRequest, out: list[Decision]) -> None:
        """Refuse a request for a model that does not exist, or for a pool that was removed after the gateway read the
        state."""
        reason = f"The model {ask.model} does not exist."
        if self.fleet.model(ask.model) is not None:
            reason = f"The pool {ask.pool} does not exist."
        out.append(Refused(connection, ask.lease_id, ModelNotFound.code, reason, None, Reason.UNKNOWN_MODEL))

    def _refuse(
        self,
        pool: PoolState,
        waiting: QueuedRequest,
        code: str,
        cause: Reason,
        reason: str,
        retry_after_s: float,
        now: float,
        out: list[Decision],
        over_share: bool = False,
    ) -> None:
        connection, ask = waiting.session.connection, waiting.ask
        if yields(ask.priority):
            self.sheds.yielded(ask.tier.value)
        else:
            self.sheds.shed(ask.tier.value, over_share)
            pool.served.count(waiting.length, False)
        self.records.refused(waiting, pool.name, self.policy.name, now, f"{code}: {reason}", retry_after_s)
        if connection is not None:
            out.append(Refused(connection, ask.lease_id, code, reason, retry_after_s, cause, over_share))
