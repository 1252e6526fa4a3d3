"""Many requests through two gateways while everything around them is killed, then the engines' books beside ours."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from gateway.metering.journal.records import engine_request_id
from tests.billing.comparison import Comparison, Counted, Row, compare
from tests.billing.customer import End, ask
from tests.deployment import Deployment, deployment
from tests.e2e.failures.processes import all_ready, kill
from tests.e2e.failures.scrape import scrape, total
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.waiting import eventually

TOKEN = "token-of-the-books"
EXACT, ABORTED, CLOSED_ONLY, TELLING = MODELS = ("exact", "aborted", "closed-only", "telling")
"""Models and pools. Engines of `exact` can be asked by id; that of `aborted` (`sglang`) counts when it is aborted;
those of the others (`openai`) can only be closed, and that of `telling` counts with every event."""
SHARES = (0.92, 0.04, 0.02, 0.02)
PROMPT_TOKENS = 16
"""What an engine says of a prompt: as many as the gateway estimates, for it has no tokenizer here."""
AT_ONCE = 40
MAX_TOKENS = 12
TTFT_S, INTER_TOKEN_S = 0.004, 0.008
LEAVING = 0.3
"""Share of requests whose customer leaves before the end: in the queue, during prefill, or at any event."""
Kills = tuple[tuple[float, str], ...]
"""(share of the requests done, who is killed then)"""
FEW_KILLS: Kills = ((0.2, "gateway-1"), (0.4, "postgres"), (0.7, "valkey"))
KILLS: Kills = (
    (0.12, "gateway-1"),
    (0.24, "postgres"),
    (0.36, "gateway-2"),
    (0.50, "valkey"),
    (0.62, "gateway-1"),
    (0.74, "postgres"),
)
PRICE = """
INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro)
VALUES ('exact', '2020-01-01', 200000, 20000, 250000, 800000)
"""


class Work(msgspec.Struct, frozen=True):
    """What an engine worked off and what of it is billed, for a dialect that does not say to the token."""

    model: str
    attempts: int
    """That the engine has seen."""
    prompt_tokens: int
    output_tokens: int
    billed_prompt_tokens: int
    billed_output_tokens: int
    read_tokens: int
    """That reached customers in streams."""
    crashed_bound: int
    """The most that attempts could have come to whose gateway was killed: they are not billed."""
    left_bound: int
    """The most output of attempts that were left and have no final count: what was on its way is not known."""

    @property
    def missing(self) -> int:
        return self.prompt_tokens + self.output_tokens - self.billed_prompt_tokens - self.billed_output_tokens

    def table(self) -> str:
        return (
            f"{self.model}: {self.attempts:,} attempts; prompt {self.prompt_tokens:,} worked off, "
            f"{self.billed_prompt_tokens:,} billed; output {self.output_tokens:,} worked off, "
            f"{self.read_tokens:,} read in streams, {self.billed_output_tokens:,} billed; missing {self.missing:,}, "
            f"bound {self.crashed_bound:,} of crashes + {self.left_bound:,} on their way"
        )


class Report(msgspec.Struct):
    requests: int
    seconds: float
    staying: Counter[str]
    """Requests by model whose customers do not leave before the end."""
    ends: Counter[str]
    killed: list[str]
    comparison: Comparison
    counted: list[Counted]
    rows: list[Row]
    """What was compared."""
    amount_micro: int
    expected_amount_micro: int
    """Recomputed from the engines' counts of the billed attempts."""
    without_engine_path: int
    """Rows of attempts that reached an engine, without its pool or driver."""
    unbilled: Counter[str]
    """Tokens that an engine worked off and nobody pays, by how their attempt ended."""
    works: list[Work]
    """By model whose engines give no final count, or none after a crash."""

    def table(self) -> str:
        lines = [f"{self.requests:,} requests in {self.seconds:.0f} s; killed: {', '.join(self.killed)}"]
        lines += [f"  {end:<34}{count:>10,}" for end, count in sorted(self.ends.items())]
        lines.append(f"  {'attempts counted by an engine':<34}{self.comparison.attempts:>10,}")
        lines.append(f"  {'rows in the ledger':<34}{self.comparison.rows:>10,}")
        lines += [f"    {name:<32}{count:>10,}" for name, count in sorted(self.comparison.finishes.items())]
        for name in ("missing", "doubled", "wrong", "billed_twice", "unseen"):
            lines.append(f"  {name.replace('_', ' '):<34}{len(getattr(self.comparison, name)):>10,}")
        lines.append(f"  {'tokens off, either way':<34}{self.comparison.error_tokens:>10,}")
        lines.append(f"  {'billed, micro-units':<34}{self.amount_micro:>10,}  of {self.expected_amount_micro:,}")
        lines.append(f"  {'worked off, not billed':<34}{self.unbilled.total():>10,}")
        lines += [f"    {name:<32}{count:>10,}" for name, count in sorted(self.unbilled.items())]
        lines += [work.table() for work in self.works]
        return "\n".join(lines)

    def line(self) -> str:
        return msgspec.json.encode(
            {
                "requests": self.requests,
                "rows": self.comparison.rows,
                "error_tokens": self.comparison.error_tokens,
                "attempts": self.comparison.attempts,
                "seconds": round(self.seconds, 1),
                "unbilled_tokens": self.unbilled.total(),
                "under_count": {work.model: work.missing for work in self.works},
                "under_count_bound": {work.model: work.crashed_bound + work.left_bound for work in self.works},
            }
        ).decode()


@asynccontextmanager
async def billing_deployment(records: int) -> AsyncIterator[tuple[Deployment, list[FakeEngineProcess]]]:
    """Two gateways; two engines that can be asked by id, and one behind each other dialect."""
    options = ["--brief", "--records", str(records)]
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(fake_engine(token=TOKEN, options=options)) for _ in range(5)]
        pools = [
            Pool(
                EXACT,
                "embedded",
                tuple(Replica(f"exact-{n}", engine.url) for n, engine in enumerate(engines[:2])),
                1_000,
            ),
            Pool(ABORTED, "sglang", (Replica("aborted-0", engines[2].url),), 1_000),
            Pool(CLOSED_ONLY, "openai", (Replica("closed-0", engines[3].url),), 1_000),
            Pool(
                TELLING,
                "openai",
                (Replica("telling-0", engines[4].url),),
                1_000,
                continuous_usage_stats=True,
                cache_salt=True,
            ),
        ]
        models = [Model(pool.name, Tier.CHAT, pool.name, 4_096) for pool in pools]
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
            "SLIPSTREAM_LOCAL__RESTART_FIRST_S": "0.1",
            "SLIPSTREAM_LOCAL__RESTART_MAX_S": "0.2",
            "SLIPSTREAM_GATEWAY__ROUTER__PATIENCE_S": "0.5",
        }
        for engine in engines:
            # a stream ends where its max_tokens say
            await engine.control(
                tokens=10_000, ttft_s=TTFT_S, inter_token_s=INTER_TOKEN_S, cached_tokens=3, prompt_tokens=PROMPT_TOKENS
            )
        running = await stack.enter_async_context(
            deployment(options=["--gateways", "2"], environment=environment, token=TOKEN)
        )
        yield running, engines


class Trial:
    """One run. `run` returns the report."""

    def __init__(
        self, running: Deployment, engines: Sequence[FakeEngineProcess], requests: int, kills: Kills, seed: int
    ) -> None:
        self._running = running
        self._kills = kills
        self._exact, self._others = engines[:2], dict(zip(MODELS[1:], engines[2:], strict=True))
        self._read_tokens: Counter[str] = Counter()
        self._requests = requests
        self._choose = random.Random(seed)
        self._left_to_do = requests
        self._done = 0
        self._progress = asyncio.Event()
        self._staying: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self._keys: list[str] = []

    async def run(self) -> Report:
        """Serve, kill, settle, compare."""
        limits = ("--requests-per-minute", "100000000", "--tokens-per-minute", "900000000", "--max-concurrency", "1000")
        self._keys = [self._running.key, await self._running.make_key(*limits)]
        async with self._running.database() as database:
            await database.execute(PRICE)
        began_s = time.monotonic()
        killer = asyncio.create_task(self._kill())
        customers = [asyncio.create_task(self._customer()) for _ in range(AT_ONCE)]
        await asyncio.gather(*customers)
        killed = await killer
        await all_ready(self._running)
        await self._engines_are_idle()
        counted = [count for engine in self._exact for count in await _counts(engine)]
        rows = await self._rows_of({count.engine_id for count in counted})
        exact_rows = [row for row in rows if row.model == EXACT]
        amount, expected = await self._amounts()
        return Report(
            requests=self._requests,
            seconds=time.monotonic() - began_s,
            staying=self._staying,
            ends=self._ends,
            killed=killed,
            comparison=compare(counted, exact_rows),
            counted=counted,
            rows=exact_rows,
            amount_micro=amount,
            expected_amount_micro=expected,
            without_engine_path=await self._without_engine_path(),
            unbilled=_unbilled(counted, exact_rows),
            works=[await self._work(model, [row for row in rows if row.model == model]) for model in self._others],
        )

    async def _work(self, model: str, rows: list[Row]) -> Work:
        counts = await _counts(self._others[model])
        crashed = sum(row.finish == "gateway_crash" for row in rows)
        left = sum(row.finish == "client_gone" and row.outcome != "exact" for row in rows)
        billed = [row for row in rows if row.billed]
        return Work(
            model=model,
            attempts=len(counts),
            prompt_tokens=sum(count.prompt_tokens for count in counts),
            output_tokens=sum(count.completion_tokens for count in counts),
            billed_prompt_tokens=sum(row.prompt_tokens for row in billed),
            billed_output_tokens=sum(row.completion_tokens for row in billed),
            read_tokens=self._read_tokens[model],
            crashed_bound=crashed * (PROMPT_TOKENS + MAX_TOKENS),
            left_bound=left * MAX_TOKENS,
        )

    async def _customer(self) -> None:
        while self._left_to_do > 0:
            self._left_to_do -= 1
            model, request, leave_after, patience_s = self._next()
            self._staying[model] += leave_after is patience_s is None
            while True:
                customer = await ask(self._running.port, request, leave_after, patience_s)
                end = customer.ended.result()
                self._ends[end.value] += 1
                if end is End.REFUSED or (end is End.BROKEN and not customer.status):
                    await asyncio.sleep(
                        0.05
                    )  # nobody listens, or nobody may be served: as a customer does, only sooner
                    continue
                assert end is not End.FAILED, (customer.status, customer._whole, customer._tail)
                break
            # the first event has no token; a customer that stays has the finishing one, too
            if end in (End.ANSWERED, End.LEFT):
                self._read_tokens[model] += max(0, customer.events - (2 if end is End.ANSWERED else 1))
            self._done += 1
            self._progress.set()

    def _next(self) -> tuple[str, bytes, int | None, float | None]:
        """A model, a request for it, and when its customer leaves: after so many events, or seconds."""
        choose = self._choose
        [model] = choose.choices(MODELS, SHARES)
        stream, tokens = choose.random() < 0.8, choose.randint(2, MAX_TOKENS)
        body = msgspec.json.encode(
            {
                "model": model,
                "messages": [{"role": "user", "content": "Hello."}],
                "max_tokens": tokens,
                "stream": stream,
            }
        )
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Authorization: Bearer {choose.choice(self._keys)}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        leave_after = patience_s = None
        if choose.random() < LEAVING:
            if stream and choose.random() < 0.6:
                # at once, in between, and with the last token: before the events that finish
                leave_after = choose.randint(0, tokens + 1)
            elif choose.random() < 0.5:
                # on the way in, in the queue, or while the engine works on the prompt
                patience_s = choose.uniform(0, 2 * TTFT_S)
            else:
                patience_s = choose.uniform(0, TTFT_S + tokens * INTER_TOKEN_S)
        return model, head.encode() + body, leave_after, patience_s

    async def _kill(self) -> list[str]:
        killed = []
        for share, name in self._kills:
            while self._done < share * self._requests:
                self._progress.clear()
                await self._progress.wait()
            await kill(self._running, name)
            killed.append(name)
        return killed

    async def _engines_are_idle(self) -> None:
        async def idle() -> bool:
            recorded = [await engine.recorded() for engine in (*self._exact, *self._others.values())]
            return all(record["finished"] or record["disconnected"] for records in recorded for record in records)

        await eventually(idle)

    async def _rows_of(self, engine_ids: set[str]) -> list[Row]:
        """Every row, once there is one for each of these attempts and the gateways have nothing left to ship."""
        rows: list[Row] = []

        async def all_there() -> bool:
            if total(await scrape(self._running), "slipstream_ledger_backlog_rows"):
                return False
            nonlocal rows
            async with self._running.database() as database:
                found = await database.fetch(f"SELECT {', '.join(Row.__struct_fields__)} FROM gateway.usage_events")
            before, rows = len(rows), [Row(*row) for row in found]
            return before == len(rows) and engine_ids <= {
                engine_request_id(row.request_id, row.attempt) for row in rows
            }

        await eventually(all_there)
        return rows

    async def _without_engine_path(self) -> int:
        async with self._running.database() as database:
            found: int = await database.fetchval(
                "SELECT count(*) FROM gateway.usage_events WHERE replica_id IS NOT NULL AND ((pool, driver) IN "
                "(('exact', 'embedded'), ('aborted', 'sglang'), ('closed-only', 'openai'), ('telling', 'openai')))"
                " IS NOT TRUE"
            )
        return found

    async def _amounts(self) -> tuple[int, int]:
        """(what the ledger bills, what its own rows come to at that price) of the exact model."""
        async with self._running.database() as database:
            rows = await database.fetch(
                "SELECT prompt_tokens, cached_tokens, completion_tokens, amount_micro, billed "
                "  FROM gateway.usage_events WHERE model = 'exact'"
            )
        expected = 0
        for row in rows:
            if row["billed"]:
                fresh = row["prompt_tokens"] - row["cached_tokens"]
                exact = fresh * 200_000 + row["cached_tokens"] * 20_000 + row["completion_tokens"] * 800_000
                expected += (exact + 500_000) // 1_000_000
        return sum(row["amount_micro"] for row in rows), expected


def _unbilled(counted: Sequence[Counted], rows: Sequence[Row]) -> Counter[str]:
    """Tokens of attempts that an engine counted and nobody pays, by how they ended."""
    by_id = {engine_request_id(row.request_id, row.attempt): row for row in rows}
    unbilled: Counter[str] = Counter()
    for attempt in counted:
        row = by_id.get(attempt.engine_id)
        if row is None or not row.billed:
            unbilled[row.finish if row else "no row"] += attempt.prompt_tokens + attempt.completion_tokens
    return unbilled


async def _counts(engine: FakeEngineProcess) -> list[Counted]:
    return [Counted(record["rid"], record["prompt_tokens"], record["tokens"]) for record in await engine.recorded()]
