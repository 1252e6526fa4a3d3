"""Recounts a budget's spending after Valkey lost its data, for a new budget, and after spending without Valkey.

1. The leader begins a round for the rule in Valkey, where all gateways see it.
2. Each gateway delivers its settlements, announces its open ones, empties its journal into the ledger, and answers.
3. The leader sums the ledger without the announced requests, adds the sum in Valkey, and ends the round.

Nothing is reserved in the budget meanwhile, so every request is in exactly one of the two sums: in Valkey's if it was
announced or settled there since the round began, in the ledger's if it had ended before.

Valkey's clock determines the month. A month that has not begun by the ledger's clock is not counted, because it has no
spending yet, and a clock that is ahead would reset every budget.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import hiredis
import msgspec

from contracts.background_task import BackgroundTask
from contracts.generation import Caller, Tier
from gateway.limits.config import LimitsConfig
from gateway.limits.epoch import Epoch
from gateway.limits.levels import Level
from gateway.limits.metrics import LimitsMetrics
from gateway.limits.plan import PlannedRule
from gateway.limits.script import Script
from gateway.limits.spending import Spending, Subject
from storage.engine import FAILURES
from storage.valkey import CallTimeout, ConnectionLost, Valkey
from storage.valkey_command import pack

LOOK_S = 0.02
"""Interval at which a leader checks for answers, and a follower for the end."""
DRAIN_S = 5.0
ROUND_KEPT_S = 3_600
MONTH_AWAITED_S = 2.0
"""How far the ledger's clock may lag Valkey's at the end of a month before budgets are refused."""
TOKENS_KEPT = 10_000
SUMS = 5
"""Limit of the sums that late announcements require."""
END = "return redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] and redis.call('HDEL', KEYS[1], ARGV[1]) or 0"
"""Ends a round, but not the round of a leader that has replaced this one."""

STORE_FAILURES = (ConnectionLost, CallTimeout, hiredis.ReplyError)

logger = logging.getLogger(__name__)


class Round(msgspec.Struct, frozen=True):
    """A recount of one budget."""

    token: str
    organization_id: str
    planned: PlannedRule

    def concerns(self, caller: Caller, tier: Tier) -> bool:
        """Whether this budget pays for a request."""
        rule = self.planned
        subject = {
            Level.ORGANIZATION: caller.organization_id,
            Level.PROJECT: caller.project_id,
            Level.KEY: caller.key_id,
        }[rule.level]
        return subject == rule.subject_id and rule.tier in (None, tier)


class Counting:
    """Recounts for one gateway process. prepare: see Limiter. drain: empties this gateway's journal into the ledger."""

    def __init__(
        self,
        valkey: Valkey,
        script: Script,
        config: LimitsConfig,
        metrics: LimitsMetrics,
        spending: Spending,
        epoch: Epoch,
        prepare: Callable[[Sequence[Round]], Awaitable[None]],
        drain: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._valkey = valkey
        self._script = script
        self._config = config
        self._metrics = metrics
        self._spending = spending
        self._epoch = epoch
        self._prepare = prepare
        self._drain = drain
        self._joined = asyncio.Event()
        self._rounds_key = f"{config.key_prefix}:rounds"
        self._answered: dict[str, None] = {}
        self._ended: dict[str, None] = {}
        """Tokens of the rounds that this gateway led. Valkey may hold one again, because a crash lost its end."""
        self._answering = asyncio.Lock()
        self._counts: dict[str, asyncio.Task[bool]] = {}
        self._polling = BackgroundTask.every(config.seed_poll_s, self._poll, "limits-counting", at_once=True)

    def start(self) -> None:
        """Join the gateways for which rounds wait, and begin to answer."""
        self._polling.start()

    async def stop(self) -> None:
        """Stop answering and counting. Another gateway ends a running round."""
        await self._polling.stop()
        tasks = list(self._counts.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def joined(self) -> bool:
        """Whether other gateways wait for this gateway's journal. Until they do, it must spend no money."""
        return self._joined.is_set()

    async def wait_joined(self) -> None:
        """Return once the other gateways wait for this one's journal."""
        await self._joined.wait()

    async def count(self, rules: Sequence[PlannedRule]) -> bool:
        """Start the recount of these budgets in the background. Returns whether it ended within `seed_wait_s`."""
        if not self.joined:
            return False
        organization_ids = [rule.key.partition("{")[2].partition("}")[0] for rule in rules]
        tasks = [self._task(*pair) for pair in zip(organization_ids, rules, strict=True)]
        done, _ = await asyncio.wait(tasks, timeout=self._config.seed_wait_s)
        return len(done) == len(tasks) and all(not task.cancelled() and task.result() for task in done)

    def _task(self, organization_id: str, rule: PlannedRule) -> asyncio.Task[bool]:
        task = self._counts.get(rule.key)
        if task is None:
            task = self._counts[rule.key] = asyncio.create_task(self._count(organization_id, rule))
            task.add_done_callback(lambda _: self._counts.pop(rule.key, None))
        return task

    async def _count(self, organization_id: str, rule: PlannedRule) -> bool:
        try:
            own = Round(secrets.token_hex(8), organization_id, rule)
            if not await self._lead(own):
                return True
            try:
                return await self._conduct(own)
            finally:
                _keep(self._ended, own.token)
                self._end(own)
        except (*STORE_FAILURES, *FAILURES) as error:
            logger.warning("spending of %s is not counted: %r", rule.name, error)
            return False

    async def _lead(self, own: Round) -> bool:
        """Become the leader; False if another one counted meanwhile. A leader that does not finish is replaced."""
        gives_up_s = time.monotonic() + self._config.seed_patience_s + DRAIN_S
        encoded, seen = msgspec.json.encode(own), b""
        while await self._call("HSETNX", self._rounds_key, own.planned.key, encoded) != 1:
            other = await self._call("HGET", self._rounds_key, own.planned.key)
            if not other or (seen and other != seen):
                return False
            seen = other
            if time.monotonic() > gives_up_s:
                await self._call("HSET", self._rounds_key, own.planned.key, encoded)
                return True
            await asyncio.sleep(LOOK_S)
        return True

    async def _conduct(self, own: Round) -> bool:
        rule = own.planned
        begun = await self._upkeep("begin", rule, own.token)
        if begun[0] == 0:
            return True
        _, since_ms, month = begun
        if not await self._has_begun(rule, since_ms):
            return False
        await self._answer([own])
        heard = "all" if await self._heard(own) else "without"
        subject = Subject(rule.level, rule.subject_id, rule.tier)
        for _ in range(SUMS):
            known, *ids = await self._upkeep("ids", rule, own.token)
            if not known:
                return False
            without = [each.decode() for each in ids]
            spent_micro = await self._spending.spent_micro(subject, since_ms, without)
            done = (await self._upkeep("seed", rule, own.token, spent_micro, len(without), month))[0]
            if done == 1:
                self._metrics.seeded.labels(heard).inc()
                logger.info("spending of %s counted: %d micro in the ledger", rule.name, spent_micro)
                return True
            if done == 0:
                return False
        return False

    async def _has_begun(self, rule: PlannedRule, since_ms: int) -> bool:
        """Whether the month that began at `since_ms` by Valkey's clock has begun by the ledger's, after a short
        wait."""
        while (behind_s := (since_ms - await self._spending.now_ms()) / 1_000) > 0:
            if behind_s > MONTH_AWAITED_S:
                logger.error(
                    "spending of %s is not counted: by Valkey's clock a month has begun that by PostgreSQL's begins in "
                    "%.0f s; set the clocks of both machines",
                    rule.name,
                    behind_s,
                )
                return False
            await asyncio.sleep(max(behind_s, 0.001))
        return True

    async def _heard(self, own: Round) -> bool:
        """Wait until all gateways have answered; False if `seed_patience_s` ended first."""
        deadline_s = time.monotonic() + self._config.seed_patience_s
        while True:
            answered = {each.decode() for each in await self._call("SMEMBERS", self._answers_key(own))}
            missing = (await self._spending.instances()) - answered
            if not missing:
                return True
            if time.monotonic() > deadline_s:
                logger.error(
                    "spending of %s is counted without gateways %s: their journals are not included",
                    own.planned.name,
                    ", ".join(sorted(missing)),
                )
                return False
            await asyncio.sleep(LOOK_S)

    async def _poll(self) -> None:
        try:
            if not self.joined:
                await self._spending.join(self._epoch.instance, self._epoch.name)
                self._joined.set()
            if self._valkey.connected:
                await self._look()
        except (*STORE_FAILURES, *FAILURES) as error:
            logger.debug("rounds not answered: %r", error)

    async def _look(self) -> None:
        found = await self._call("HVALS", self._rounds_key)
        rounds = [msgspec.json.decode(each, type=Round) for each in found]
        for each in rounds:
            if each.token in self._ended:
                self._end(each)
        unanswered = [each for each in rounds if each.token not in self._answered and each.token not in self._ended]
        if unanswered:
            await self._answer(unanswered)

    async def _answer(self, rounds: Sequence[Round]) -> None:
        """Confirm that neither sum lacks a request of this gateway."""
        async with self._answering:
            rounds = [each for each in rounds if each.token not in self._answered]
            if not rounds:
                return
            async with asyncio.timeout(DRAIN_S):
                await self._prepare(rounds)
            if not await self._drain(DRAIN_S):
                logger.warning("the journal is not in the ledger yet; budgets wait for it")
                return
            for each in rounds:
                await self._call("SADD", self._answers_key(each), self._epoch.instance)
                self._send("EXPIRE", self._answers_key(each), ROUND_KEPT_S)
                _keep(self._answered, each.token)

    def _end(self, led: Round) -> None:
        self._send("EVAL", END, 1, self._rounds_key, led.planned.key, msgspec.json.encode(led))
        self._send("DEL", self._answers_key(led))

    def _answers_key(self, each: Round) -> str:
        return f"{self._config.key_prefix}:round:{each.token}"

    async def _upkeep(self, verb: str, rule: PlannedRule, *arguments: str | int) -> list[Any]:
        reply: list[Any] = await self._valkey.call(self._script.upkeep(verb, [rule.key], *arguments))
        return reply

    async def _call(self, *words: str | int | bytes) -> Any:
        return await self._valkey.call(pack(words))

    def _send(self, *words: str | int | bytes) -> None:
        try:
            self._valkey.send(pack(words))
        except ConnectionLost:
            logger.debug("not sent: %s", words[0])


def _keep(tokens: dict[str, None], token: str) -> None:
    """Add the newest of a limited number of tokens."""
    tokens[token] = None
    if len(tokens) > TOKENS_KEPT:
        del tokens[next(iter(tokens))]
