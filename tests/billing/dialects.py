"""A deployment with one fake engine behind every dialect, keys of known limits, and what those limits have counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from gateway.auth.keys import mint
from gateway.limits.levels import Level, Limits, Rule
from gateway.limits.limiter import Limiter
from infra.local.folders import DataFolder
from tests.deployment import Deployment, deployment
from tests.e2e.failures.processes import fresh_connections
from tests.e2e.failures.scrape import samples_in, scrape, targets, total
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.gateway.limits.store import MeasuredLimiter
from tests.waiting import eventually

TOKEN = "token-of-the-dialects"
EMBEDDED, SGLANG, PLAIN, TELLING = DIALECTS = ("embedded", "sglang", "plain", "telling")
"""Models, pools and engines. plain: `openai` with no options; telling: `openai` with both."""
FINAL_COUNT = (EMBEDDED, SGLANG)
PLACES = 6
PROMPT_TOKENS, CACHED_TOKENS = 16, 3
"""What the engines say of `MESSAGES`: as many as the gateway estimates, for it has no tokenizer here."""
MESSAGES = [{"role": "user", "content": "Hello."}]
A_DAYS_TOKENS, A_MINUTES_REQUESTS = 1_000_000_000, 1_000
SCRIPT = {"tokens": 10_000, "prompt_tokens": PROMPT_TOKENS, "cached_tokens": CACHED_TOKENS}
"""A stream ends where its max_tokens say."""


class Key(msgspec.Struct, frozen=True):
    """A key of an organization of its own, with one rule."""

    secret: str
    organization_id: str
    rule: Rule


class Dialects:
    def __init__(self, running: Deployment, engines: Mapping[str, FakeEngineProcess], limiter: Limiter) -> None:
        self.running = running
        self.engines = engines
        self._limiter = limiter
        self._keys = 0
        self._looking = asyncio.Lock()

    async def script(self, *models: str, **changes: Any) -> None:
        """Forget what was and let these engines, or all, do this from now on."""
        for model in models or DIALECTS:
            await self.engines[model].control(reset=True)
            await self.engines[model].control(**{**SCRIPT, **changes})

    async def key(self, requests_per_minute: int = A_MINUTES_REQUESTS) -> Key:
        self._keys = number = self._keys + 1
        minted = mint(DataFolder(self.running.data).pepper_file.read_text().strip().encode())
        async with self.running.database() as database:
            organization: UUID = await database.fetchval(
                "INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id", f"customer {number}"
            )
            project = await database.fetchval(
                "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, 'p') RETURNING id", organization
            )
            key = await database.fetchval(
                "INSERT INTO gateway.api_keys (project_id, name, hash, display) VALUES ($1, 'k', $2, $3) RETURNING id",
                project,
                minted.hash,
                minted.display,
            )
            await database.execute(
                "INSERT INTO gateway.limits (level, subject_id, requests_per_minute, tokens_per_day)"
                " VALUES ('key', $1, $2, $3)",
                key,
                requests_per_minute,
                A_DAYS_TOKENS,
            )
        limits = Limits(requests_per_minute=requests_per_minute, tokens_per_day=A_DAYS_TOKENS)
        return Key(minted.secret, str(organization), Rule(Level.KEY, str(key), None, limits))

    async def left(self, key: Key) -> tuple[int, int]:
        """(requests this minute, tokens counted today) of a key."""
        standing, _ = await self._limiter.standing(key.organization_id, [key.rule])
        left = {one.counter: one.remaining for one in standing}
        return left["requests_per_minute"], A_DAYS_TOKENS - left["tokens_per_day"]

    async def queued(self, pool: str, *, requests: int) -> None:
        """That many wait for a place in a pool. A reservation alone does not say so: a customer who leaves before it is
        answered has asked nobody for a place, and leaves no row."""
        router = targets(self.running)["router"]

        async def waiting() -> bool:
            async with fresh_connections() as client:
                samples = samples_in(await client.get(router))
            return total(samples, "slipstream_router_queued", pool=pool) == requests

        await eventually(waiting)

    async def quiet(self) -> None:
        """Nobody is served, and everything is in the ledger. Seen twice: a request whose customer has left may still be
        on its way in."""
        seen = 0

        async def idle() -> bool:
            nonlocal seen
            shown = await scrape(self.running)
            busy = total(shown, "slipstream_active_requests") or total(shown, "slipstream_ledger_backlog_rows")
            seen = 0 if busy else seen + 1
            return seen == 2

        async with self._looking:
            await eventually(idle)

    async def rows(self, key: Key, least: int = 0) -> list[dict[str, Any]]:
        """Everything in the ledger of a key, first to last, once nothing more will come. least: of rows to wait for,
        where a gateway may not have noticed yet that its customer has left."""
        found: list[asyncpg.Record] = []

        async def there() -> bool:
            found[:] = await database.fetch(
                "SELECT * FROM gateway.usage_events WHERE key_id = $1 ORDER BY request_id, attempt",
                UUID(key.rule.subject_id),
            )
            return len(found) >= least

        await self.quiet()
        async with self.running.database() as database:
            await eventually(there)
        return [dict(row) for row in found]


def asked(key: Key, model: str, max_tokens: int, *, stream: bool = True, **more: Any) -> bytes:
    """A request for one of the models, as bytes."""
    body = msgspec.json.encode(
        {"model": model, "messages": MESSAGES, "max_tokens": max_tokens, "stream": stream, **more}
    )
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key.secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def dialects() -> AsyncIterator[Dialects]:
    """Started; everything it started is gone at the end."""
    async with AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(fake_engine(token=TOKEN)) for name in DIALECTS}
        pools = []
        for name, engine in engines.items():
            options: dict[str, Any] = {"continuous_usage_stats": True, "cache_salt": True} if name == TELLING else {}
            driver = name if name in FINAL_COUNT else "openai"
            pools.append(Pool(name, driver, (Replica(name, engine.url),), PLACES, **options))
        models = [Model(pool.name, Tier.CHAT, pool.name, 4_096) for pool in pools]
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
            # engines are filled to their places, however slow the tests before have made them look
            "SLIPSTREAM_ROUTER__SLOS": "[]",
        }
        running = await stack.enter_async_context(deployment(environment=environment, token=TOKEN))
        limiter = MeasuredLimiter(f"unix://{DataFolder(running.data).valkey_socket}", instance="reader")
        await limiter.start()
        stack.push_async_callback(limiter.stop)
        await limiter.wait_connected()
        yield Dialects(running, engines, limiter)
