"""Works on runs and comparisons, one after another, as long as there are any.

A kill at any time is safe: answers are stored item by item, and the next worker asks only the missing ones. An item
that was asked twice, because its answer could not be recorded, is stored once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, TypeVar
from uuid import UUID

import aiohttp
import asyncpg

from contracts.backoff import Backoff
from contracts.errors import InvalidField, SlipstreamError
from control.deferred.leases import LeaseLost, while_leased
from control.eval_runs import answers, claims
from control.eval_runs.answers import Scored
from control.eval_runs.asking import Answer, Asker, GatewayKeyRefused, Unanswerable
from control.eval_runs.claims import CancelAsked, Claim
from control.eval_runs.config import EvalsConfig
from control.eval_runs.night_judge import NightJudge
from control.eval_runs.plan import missing
from control.eval_runs.verdicts import rules_of, verdict
from control.evals import store
from control.evals.store import Run
from control.evals.target import Target, target_of
from control.fleet.revision import newest
from evals.slices.item import Item, Source
from storage.engine import DEFECTS, FAILURES, borrow, close, lazy_pool
from storage.tables.evals import Decision, Status

CONNECTIONS = 4
CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 30.0
RENEWALS = 3
"""How often a lease is renewed within its duration."""
IDLE_S = 30.0
"""Seconds between looks without a notification: the end of a killed worker's lease sends none."""


ResultT = TypeVar("ResultT")
Wanted = tuple[UUID, Target, str | None, Source, int]
"""An item to ask: its run, target, pool if one is named, slice and seed."""
KeyOf = Callable[[str], Awaitable[str]]
"""Returns a key to ask with, given the one that the gateway refused, empty at first. Raises SlipstreamError."""

_log = logging.getLogger(__name__)


def score_of(item: Item, answer: str) -> float:
    """The score of an answer. It is 0 if the check cannot parse the answer, such as a number of 5,000 digits or endless
    brackets: a model that writes such things must not end its run."""
    try:
        return item.score(answer)
    except (ValueError, RecursionError, MemoryError) as error:
        _log.warning("evals: an answer to an item of %s cannot be read: %r", item.slice, error)
        return 0.0


class RunFailed(Exception):
    """The run cannot be finished; the message gives the reason."""


class Runner:
    """The runner of one worker process.

    url: the gateway's. trusted: for its certificate; None for the default. find: slices by name; raises KeyError.
    nights: judges ended nights; None to leave them unjudged.
    """

    def __init__(
        self,
        database_url: str,
        url: str,
        config: EvalsConfig,
        key_of: KeyOf,
        find: Callable[[str], Source],
        trusted: ssl.SSLContext | None = None,
        nights: NightJudge | None = None,
    ) -> None:
        self._database_url = database_url
        self._url = url
        self._config = config
        self._key_of = key_of
        self._find = find
        self._trusted = trusted
        self._nights = nights
        self._key = ""
        self._key_lock = asyncio.Lock()
        self._waiting: set[UUID] = set()
        """Claimed runs whose wait was reported."""
        self._pool: asyncpg.Pool[Any]
        self._session: aiohttp.ClientSession

    async def run(self, due: asyncio.Event, stop: asyncio.Event) -> None:
        """Work whenever a run may be due, until `stop`; the current run is then released."""
        self._pool = await lazy_pool(
            self._database_url, size=CONNECTIONS, connect_timeout_s=CONNECT_TIMEOUT_S, name="slipstream-evals"
        )
        connector = aiohttp.TCPConnector(limit=0, ssl=self._trusted or True)
        timeout = aiohttp.ClientTimeout(total=self._config.answer_timeout_s)
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
                while not stop.is_set():
                    due.clear()
                    await self._until_idle(stop)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(due.wait(), IDLE_S)
        finally:
            await close(self._pool, CONNECT_TIMEOUT_S)

    async def _until_idle(self, stop: asyncio.Event) -> None:
        try:
            await self._judge_nights()
            while not stop.is_set() and (held := await self._once(claims.claim, self._config.lease_s)) is not None:
                await self._work(held, stop)
                await self._judge_nights()
        except FAILURES as error:
            _log.warning("evals wait for the database: %r", error)

    async def _judge_nights(self) -> None:
        """Judge ended nights. Raises FAILURES of the database; a defect in the judge does not stop runs."""
        if self._nights is None:
            return
        try:
            await self._once(self._nights.look)
        except TimeoutError:  # perhaps nights of very many items; runs continue
            _log.warning("evals: judging nights took longer than %g s; it is tried again", STATEMENT_TIMEOUT_S)
        except FAILURES:
            raise
        except Exception:
            _log.exception("evals: a night could not be judged; it is tried again")

    async def _work(self, held: Claim, stop: asyncio.Event) -> None:
        """Work on a claim until it ends, is lost, or the process stops."""
        name = f"{held.table.removesuffix('s')} {held.id}"
        _log.info("evals: %s begins", name)
        work = self._run(held) if held.table == claims.RUNS else self._compare(held)
        try:
            done, failure = await while_leased(work, self._keep(held), stop)
        finally:
            self._waiting.clear()
        if done:
            _log.info("evals: %s is done", name)
            return
        await self._gave_up(held, name, failure)

    async def _gave_up(self, held: Claim, name: str, failure: BaseException | None) -> None:
        """End or release an unfinished claim. failure: None if the process stops."""
        match failure:
            case None:
                with contextlib.suppress(*FAILURES):  # its lease ends anyway
                    await self._once(claims.give_back, held)
            case LeaseLost():
                _log.warning("evals: %s was taken over by another worker, or has ended", name)
            case CancelAsked():
                await self._end(held, Status.CANCELLED)
            case RunFailed() | Unanswerable() | SlipstreamError():
                _log.error("evals: %s failed: %s", name, failure)
                await self._end(held, Status.FAILED, str(failure))
            case _:
                _log.error("evals: %s failed", name, exc_info=failure)
                await self._end(held, Status.FAILED, f"{type(failure).__name__}: {failure}")

    async def _end(self, held: Claim, status: Status, error: str | None = None) -> None:
        await self._do(claims.end, held, status, error)

    async def _keep(self, held: Claim) -> None:
        """Renew the lease, forever. Raises LeaseLost and CancelAsked."""
        while True:
            # an unavailable database does not end the work: only a worker that takes the expired lease does
            with contextlib.suppress(*FAILURES):
                await self._once(claims.keep, held, self._config.lease_s)
            await asyncio.sleep(self._config.lease_s / RENEWALS)

    # a run, and a comparison of two

    async def _run(self, held: Claim) -> None:
        run = await self._do(store.run, held.id)
        await self._answer(held, [run])
        await self._end(held, Status.DONE)

    async def _compare(self, held: Claim) -> None:
        comparison = await self._do(store.comparison, held.id)
        ids = [comparison.baseline_run, comparison.candidate_run]
        runs = [await self._do(store.run, each) for each in ids]
        sources = await self._sources(runs[0])
        rules = rules_of(sources, comparison.rule, comparison.budget_items)
        while True:
            await self._answer(held, runs)
            baseline, candidate = [await self._do(answers.scores, each) for each in ids]
            found = verdict(sources, runs[0].first_seed, rules, baseline, candidate)
            await self._do(answers.note_verdict, held, found)
            if not found.wanted:
                await self._do(claims.end, held, Status.DONE, None, Decision(found.decision.value))
                return
            await self._do(answers.draw, ids, found.wanted)

    async def _sources(self, run: Run) -> list[Source]:
        """The run's slices. Raises RunFailed for an unknown one."""
        try:
            return [self._find(name) for name in sorted(await self._do(answers.planned, run.id))]
        except KeyError as error:
            raise RunFailed(error.args[0]) from None

    async def _answer(self, held: Claim, runs: Sequence[Run]) -> None:
        """Ask the missing items of these runs. A comparison's two runs ask each item at about the same time.

        Raises RunFailed, Unanswerable and LeaseLost.
        """
        plans = []
        for run in runs:
            target = await self._target(run)
            sources = await self._sources(run)
            for source in sources:
                if not await self._do(answers.begin_slice, run.id, source):
                    raise RunFailed(f"the slice {source.name} has changed since the run began; queue it again")
            planned, done = await self._do(answers.planned, run.id), await self._do(answers.answered, run.id)
            wanted = missing(sources, run.first_seed, planned, done)
            plans.append([(run.id, target, run.pool, source, seed) for source, seed in wanted])
        waiting = iter([each for turn in zip_longest(*plans) for each in turn if each is not None])
        askers = [asyncio.create_task(self._ask_all(held, waiting)) for _ in range(self._config.at_once)]
        try:
            await asyncio.gather(*askers)
        finally:
            for each in askers:
                each.cancel()
            await asyncio.wait(askers)

    async def _target(self, run: Run) -> Target:
        try:
            found = target_of((await self._do(newest)).state, run.model, run.pool)
        except InvalidField as error:
            raise RunFailed(error.message) from None
        if not await self._do(answers.begin_run, run.id, found.model, found.pool, found.engine_model):
            raise RunFailed(
                f"what pool {found.pool} serves as {run.model} has changed since the run began; queue it again"
            )
        return found

    async def _ask_all(self, held: Claim, waiting: Iterator[Wanted]) -> None:
        """One of several concurrent askers."""
        for run_id, target, pool, source, seed in waiting:
            item = await asyncio.to_thread(source.item, seed)
            answer = await self._ask(run_id, target, pool, item)
            # a check may run a program for as long as its sandbox allows
            score = 0.0 if answer.error_code else await asyncio.to_thread(score_of, item, answer.text)
            scored = Scored(
                run_id=run_id,
                slice=source.name,
                seed=seed,
                cluster=item.cluster,
                answer=answer.text,
                score=score,
                request_id=answer.request_id,
                latency_ms=answer.latency_ms,
                error_code=answer.error_code,
            )
            await self._do(answers.store, held, scored)

    async def _ask(self, run_id: UUID, target: Target, pool: str | None, item: Item) -> Answer:
        """Ask with the current key, and once more with another if the gateway refuses it."""
        waits = functools.partial(self._tell_wait, run_id)
        key = self._key or await self._other_key("")
        for last in (False, True):
            asker = Asker(self._session, self._url, key, target, pool, self._config.patience_s, waits)
            try:
                return await asker.ask(item)
            except GatewayKeyRefused as error:
                if last:
                    raise Unanswerable(f"{self._url} does not take the key of evals: {error}") from None
                key = await self._other_key(key)
        raise AssertionError

    def _tell_wait(self, run_id: UUID, why: str) -> None:
        """Log a wait once per run: its other items wait for the same."""
        if run_id not in self._waiting:
            self._waiting.add(run_id)
            _log.warning("evals: run %s waits: %s", run_id, why)

    async def _other_key(self, refused: str) -> str:
        """Another key than the refused one; only one of several concurrent callers fetches it."""
        async with self._key_lock:
            if self._key == refused:
                self._key = await self._key_of(refused)
            return self._key

    # the database

    async def _once(self, work: Callable[..., Awaitable[ResultT]], *values: Any) -> ResultT:
        """Do work on a connection. Raises asyncpg's errors and TimeoutError."""
        async with asyncio.timeout(STATEMENT_TIMEOUT_S), borrow(self._pool) as connection:
            return await work(connection, *values)

    async def _do(self, work: Callable[..., Awaitable[ResultT]], *values: Any) -> ResultT:
        """Do work, with retries while the database is unavailable; all work may be done twice. Raises RunFailed."""
        backoff, began_s = Backoff(0.1, 2.0), time.monotonic()
        while True:
            try:
                return await self._once(work, *values)
            except DEFECTS:
                raise
            except FAILURES as error:
                if time.monotonic() - began_s > self._config.patience_s:
                    raise RunFailed(f"the database was away for {self._config.patience_s:g} s: {error}") from error
            await asyncio.sleep(backoff.next_s())
