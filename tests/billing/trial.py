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
from gateway.metering.records import engine_request_id
from tests.billing.comparison import Comparison, Counted, Row, compare
from tests.billing.customer import End, ask
from tests.deployment import Deployment, deployment
from tests.e2e.failures.processes import all_ready, kill, until
from tests.e2e.failures.scrape import scrape, total
from tests.fakes.process import FakeEngineProcess, fake_engine

TOKEN = "token-of-the-books"
EXACT, CLOSED_ONLY = "exact", "closed-only"
AT_ONCE = 40
MAX_TOKENS = 12
LEAVING = 0.3
"""Share of requests whose customer leaves before the end."""
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


class Report(msgspec.Struct):
    """What a trial found."""

    requests: int
    seconds: float
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
    closed_engine_tokens: int
    """On an engine that can only be stopped by closing the connection: what it generated,"""
    closed_ledger_tokens: int
    """what the ledger has,"""
    closed_bound_tokens: int
    """and how much may be missing: every attempt of unknown length could have run to its limit."""

    def table(self) -> str:
        """For people."""
        lines = [f"{self.requests:,} requests in {self.seconds:.0f} s; killed: {', '.join(self.killed)}"]
        lines += [f"  {end:<34}{count:>10,}" for end, count in sorted(self.ends.items())]
        lines.append(f"  {'attempts counted by an engine':<34}{self.comparison.attempts:>10,}")
        lines.append(f"  {'rows in the ledger':<34}{self.comparison.rows:>10,}")
        lines += [f"    {name:<32}{count:>10,}" for name, count in sorted(self.comparison.finishes.items())]
        for name in ("missing", "doubled", "wrong", "billed_twice", "unseen"):
            lines.append(f"  {name.replace('_', ' '):<34}{len(getattr(self.comparison, name)):>10,}")
        lines.append(f"  {'tokens off, either way':<34}{self.comparison.error_tokens:>10,}")
        lines.append(f"  {'billed, micro-units':<34}{self.amount_micro:>10,}  of {self.expected_amount_micro:,}")
        lines.append(
            f"an engine that can only be closed: {self.closed_engine_tokens:,} tokens generated, "
            f"{self.closed_ledger_tokens:,} in the ledger, "
            f"{self.closed_engine_tokens - self.closed_ledger_tokens:,} fewer; bound {self.closed_bound_tokens:,}"
        )
        return "\n".join(lines)

    def line(self) -> str:
        """For machines."""
        return msgspec.json.encode(
            {
                "requests": self.requests,
                "rows": self.comparison.rows,
                "error_tokens": self.comparison.error_tokens,
                "attempts": self.comparison.attempts,
                "seconds": round(self.seconds, 1),
                "closed_only_under_count": self.closed_engine_tokens - self.closed_ledger_tokens,
                "closed_only_bound": self.closed_bound_tokens,
            }
        ).decode()


@asynccontextmanager
async def billing_deployment(records: int) -> AsyncIterator[tuple[Deployment, list[FakeEngineProcess]]]:
    """Two gateways; two engines that can be asked by id, and a third that can only be closed."""
    options = ["--brief", "--records", str(records)]
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(fake_engine(token=TOKEN, options=options)) for _ in range(3)]
        pools = [
            Pool(
                EXACT,
                "embedded",
                tuple(Replica(f"exact-{n}", engine.url) for n, engine in enumerate(engines[:2])),
                1_000,
            ),
            Pool(CLOSED_ONLY, "openai", (Replica("closed-0", engines[2].url),), 1_000),
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
            await engine.control(tokens=10_000, inter_token_s=0.008, cached_tokens=3, prompt_tokens=17)
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
        self._exact, self._closed_only = engines[:2], engines[2]
        self._requests = requests
        self._choose = random.Random(seed)
        self._left_to_do = requests
        self._done = 0
        self._progress = asyncio.Event()
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
        exact_rows = [row for row in rows if row.replica_id != "closed-0"]
        closed_rows = [row for row in rows if row.replica_id == "closed-0"]
        closed_counts = await _counts(self._closed_only)
        amount, expected = await self._amounts()
        return Report(
            requests=self._requests,
            seconds=time.monotonic() - began_s,
            ends=self._ends,
            killed=killed,
            comparison=compare(counted, exact_rows),
            counted=counted,
            rows=exact_rows,
            amount_micro=amount,
            expected_amount_micro=expected,
            without_engine_path=await self._without_engine_path(),
            closed_engine_tokens=sum(count.completion_tokens for count in closed_counts),
            closed_ledger_tokens=sum(row.completion_tokens for row in closed_rows),
            closed_bound_tokens=MAX_TOKENS * sum(row.outcome != "exact" for row in closed_rows),
        )

    async def _customer(self) -> None:
        while self._left_to_do > 0:
            self._left_to_do -= 1
            request, leave_after, patience_s = self._next()
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
            self._done += 1
            self._progress.set()

    def _next(self) -> tuple[bytes, int | None, float | None]:
        """A request and when its customer leaves: after so many events, or seconds."""
        choose = self._choose
        stream, tokens = choose.random() < 0.8, choose.randint(2, MAX_TOKENS)
        leaves = choose.random() < LEAVING
        body = msgspec.json.encode(
            {
                "model": CLOSED_ONLY if choose.random() < 0.02 else EXACT,
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
        leave_after = choose.randint(0, tokens) if leaves and stream else None
        patience_s = choose.uniform(0, 0.1) if leaves and not stream else None
        return head.encode() + body, leave_after, patience_s

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
            recorded = [await engine.recorded() for engine in (*self._exact, self._closed_only)]
            return all(record["finished"] or record["disconnected"] for records in recorded for record in records)

        await until(idle)

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

        await until(all_there)
        return rows

    async def _without_engine_path(self) -> int:
        async with self._running.database() as database:
            found: int = await database.fetchval(
                "SELECT count(*) FROM gateway.usage_events WHERE replica_id IS NOT NULL AND ((pool, driver) IN "
                f"(('{EXACT}', 'embedded'), ('{CLOSED_ONLY}', 'openai'))) IS NOT TRUE"
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


async def _counts(engine: FakeEngineProcess) -> list[Counted]:
    return [Counted(record["rid"], record["prompt_tokens"], record["tokens"]) for record in await engine.recorded()]
