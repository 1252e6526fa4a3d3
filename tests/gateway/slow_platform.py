"""A gateway process and a router process in front of a fake engine, every part of it behind a link that can be slow."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import asyncpg
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from contracts.desired_state import Model, Pool, Replica
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from contracts.pooling import Task
from gateway.auth.keys import MintedKey, mint
from infra.local.folders import DataFolder
from tests.deployment import ROOT, free_port, plain_environment
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.fakes.slow_link import SlowLink, slow_link
from tests.processes import answers, module_process
from tests.temporary import short_folder
from tests.waiting import eventually


class Seen(msgspec.Struct, frozen=True):
    """One answer, by the client's clock."""

    request_id: str
    status: int
    wall_ms: float
    """From the first byte sent until the last one received."""
    timing_ms: dict[str, float]
    """What `Server-Timing` said."""
    body: bytes


class SlowPlatform:
    """Use `slow_platform`. `wide`: a chat model with room for all; `narrow`: a completion model for one at a time."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        metrics_url: str,
        database_url: str,
        database: asyncpg.Connection[Any],
        engine: FakeEngineProcess,
        data: DataFolder,
        environment: dict[str, str],
        links: dict[str, SlowLink],
        lateness: Path,
    ) -> None:
        self.session = session
        self.url = url
        self.metrics_url = metrics_url
        self.database_url = database_url
        self.database = database
        self.data = data
        self._environment = environment
        self._project: Any = None
        self.engine = engine
        self.links = links
        """`postgres`, `valkey`, `router`, `engine`."""
        self._lateness = lateness
        self.key = ""
        """A key with limits that the gateway remembers."""

    @property
    def pepper(self) -> bytes:
        """The deployment's."""
        return self.data.pepper_file.read_text().strip().encode()

    async def add_key(self, *, new_organization: bool = False) -> MintedKey:
        """A key with limits that the gateway has never seen."""
        database = self.database
        if self._project is None or new_organization:
            organization = await database.fetchval("INSERT INTO gateway.organizations (name) VALUES ('o') RETURNING id")
            self._project = await database.fetchval(
                "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, 'p') RETURNING id", organization
            )
        minted = mint(self.pepper)
        await database.execute(
            "WITH key AS (INSERT INTO gateway.api_keys (project_id, name, hash, display) VALUES ($1, 'k', $2, $3)"
            " RETURNING id) INSERT INTO gateway.limits (level, subject_id, requests_per_minute, tokens_per_minute,"
            " max_concurrency) SELECT 'key', id, 1000000, 100000000, 1000 FROM key",
            self._project,
            minted.hash,
            minted.display,
        )
        return minted

    @contextlib.contextmanager
    def slow_disk(self, delay_s: float) -> Iterator[None]:
        """Every fdatasync of the gateway takes so much longer."""
        self._lateness.write_text(str(delay_s))
        try:
            yield
        finally:
            self._lateness.write_text("0")

    @contextlib.asynccontextmanager
    async def asked(self, model: str, *, key: str = "", stream: bool = True, n: int = 1, **script: Any) -> Any:
        """The response to a request with this script, as soon as its headers are here."""
        text = "mock:" + msgspec.json.encode({"tokens": 4, **script}).decode()
        prompt = {"messages": [{"role": "user", "content": text}]} if model == "wide" else {"prompt": text}
        body = msgspec.json.encode({"model": model, "max_tokens": 1_000, "n": n, "stream": stream, **prompt})
        async with self.session.post(
            f"{self.url}/v1/{'chat/' if model == 'wide' else ''}completions",
            data=body,
            headers={"authorization": f"Bearer {key or self.key}", "x-client-request-id": "named by the client"},
        ) as response:
            yield response

    async def ask(self, model: str = "wide", **more: Any) -> Seen:
        """One request, read to its end; arguments as of `asked`."""
        began_s = time.perf_counter()
        async with self.asked(model, **more) as response:
            body = await response.read()
            wall_ms = (time.perf_counter() - began_s) * 1e3
            entries = [entry.split(";dur=") for entry in response.headers.get("server-timing", "").split(", ") if entry]
            timing_ms = {name: float(duration_ms) for name, duration_ms in entries}
            return Seen(response.headers["x-request-id"], response.status, wall_ms, timing_ms, body)

    async def trace(self, request_id: str) -> dict[str, Any]:
        """The request's row, once it is there."""
        row = await self._row("SELECT * FROM gateway.request_traces WHERE request_id = $1", request_id)
        return {**row, "phases_ms": msgspec.json.decode(row["phases_ms"])}

    async def events(self, request_id: str, count: int) -> list[dict[str, Any]]:
        """What editors reported of the request's completion, once so much is there."""

        async def reported() -> list[dict[str, Any]]:
            query = "SELECT * FROM gateway.completion_events WHERE request_id = $1 ORDER BY type, view_id"
            return [dict(row) for row in await self.database.fetch(query, request_id)]

        async def enough() -> list[dict[str, Any]] | None:
            rows = await reported()
            return rows if len(rows) >= count else None

        return await eventually(enough) if count else await reported()

    async def charge(self, request_id: str) -> dict[str, Any]:
        """The request's row of the ledger, once it is there."""
        return await self._row("SELECT * FROM gateway.usage_events WHERE request_id = $1", request_id)

    async def sample(self, request_id: str) -> dict[str, Any]:
        """How the request's prompt began, once it is there."""
        return await self._row("SELECT * FROM gateway.prefix_samples WHERE request_id = $1", request_id)

    async def phase_sums(self) -> dict[tuple[str, str, str], float]:
        """`/metrics`: (tier, phase, `count` or `sum`) of the histogram of phases, in seconds."""
        async with self.session.get(f"{self.metrics_url}/metrics") as response:
            text = await response.text()
        return {
            (sample.labels["tier"], sample.labels["phase"], sample.name.rpartition("_")[2]): sample.value
            for family in text_string_to_metric_families(text)
            if family.name == "slipstream_phase_seconds"
            for sample in family.samples
            if sample.name.endswith(("_count", "_sum"))
        }

    async def command(self, *arguments: str) -> str:
        """Output of a `slipstream` command on this deployment."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "slipstream", *arguments, "--data", str(self.data.path), cwd=ROOT,
            env=self._environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    @contextlib.asynccontextmanager
    async def another_gateway(self) -> AsyncIterator[str]:
        """The URL of a second gateway of this deployment, on a port of its own."""
        port = free_port()
        environment = {
            **self._environment,
            "SLIPSTREAM_GATEWAY__PORT": str(port),
            "SLIPSTREAM_GATEWAY__METRICS__PORT": str(free_port()),
        }
        arguments = ("gateway", "--data", str(self.data.path), "--instance", "other")
        async with module_process("slipstream", *arguments, environment=environment) as process:
            url = f"http://127.0.0.1:{port}"
            await answers(self.session, f"{url}/readyz", process)
            yield url

    async def warm_up(self) -> None:
        """Return once the gateway has served both models."""
        self.key = (await self.add_key()).secret
        for model in ("wide", "narrow"):
            await eventually(functools.partial(self._served, model))

    async def _served(self, model: str) -> bool:
        return (await self.ask(model)).status != 503

    async def _row(self, query: str, request_id: str) -> dict[str, Any]:
        return dict(await eventually(lambda: self.database.fetchrow(query, request_id)))


@contextlib.asynccontextmanager
async def slow_platform(
    postgres_url: str, valkey_url: str, *, code_tokenizer: Path | None = None
) -> AsyncIterator[SlowPlatform]:
    """Started, with all links at full speed; everything it started is gone at the end.

    code_tokenizer: of a third model, `gaps`, which can fill them; the engine finds no script in its prompts.
    """
    folder = short_folder()
    data = DataFolder(folder / "d")
    data.prepare()
    parts = urlsplit(postgres_url)
    sockets = Path(parse_qs(parts.query)["host"][0])
    router_port, gateway_port, metrics_port, lateness = free_port(), free_port(), free_port(), folder / "lateness"
    lateness.write_text("0")
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        enter = stack.enter_async_context
        engine = await enter(fake_engine(token=data.token_file.read_text().strip()))
        links: dict[str, SlowLink] = {}
        links["postgres"], _ = await enter(slow_link(sockets / ".s.PGSQL.5432", folder / ".s.PGSQL.5432"))
        links["valkey"], _ = await enter(slow_link(Path(valkey_url.removeprefix("unix://")), folder / "valkey.sock"))
        links["router"], to_router = await enter(slow_link(("127.0.0.1", router_port)))
        links["engine"], to_engine = await enter(slow_link(("127.0.0.1", engine.port)))
        environment = {
            **plain_environment(),
            **_fleet(f"http://127.0.0.1:{to_engine}", code_tokenizer),
            "SLIPSTREAM_LOCAL__DATABASE_URL": f"postgresql://{parts.netloc}{parts.path}?host={folder}",
            "SLIPSTREAM_LOCAL__VALKEY_URL": f"unix://{folder / 'valkey.sock'}",
            "SLIPSTREAM_ROUTER__PORT": str(router_port),
            "SLIPSTREAM_ROUTER__CONTROL_PORT": "0",
            "SLIPSTREAM_GATEWAY__PORT": str(gateway_port),
            "SLIPSTREAM_GATEWAY__METRICS__PORT": str(metrics_port),
            "SLIPSTREAM_GATEWAY__ROUTER__ADDRESS": f"127.0.0.1:{to_router}",
            # what is slow here must not be taken for broken
            "SLIPSTREAM_GATEWAY__AUTH__LOOKUP_TIMEOUT_S": "10",
            "SLIPSTREAM_GATEWAY__LIMITS__CALL_TIMEOUT_S": "10",
            "SLIPSTREAM_GATEWAY__LIMITS__KEY_PREFIX": "phases",
            "SLIPSTREAM_GATEWAY__TRACE_FLUSH_S": "0.05",
        }
        place = ("--data", str(data.path))
        await enter(module_process("slipstream", "router", *place, environment=environment))
        gateway = await enter(
            module_process("tests.gateway.slow_disk", str(lateness), "gateway", *place, environment=environment)
        )
        database = await asyncpg.connect(postgres_url)
        stack.push_async_callback(database.close)
        session = await enter(aiohttp.ClientSession())
        url, metrics_url = f"http://127.0.0.1:{gateway_port}", f"http://127.0.0.1:{metrics_port}"
        platform = SlowPlatform(
            session, url, metrics_url, postgres_url, database, engine, data, environment, links, lateness
        )
        await answers(session, f"{url}/readyz", gateway)
        await platform.warm_up()
        yield platform


def _fleet(engine_url: str, code_tokenizer: Path | None) -> dict[str, str]:
    pools = [
        Pool("wide", "sglang", (Replica("wide-1", engine_url),), 1_000),
        Pool("narrow", "sglang", (Replica("narrow-1", engine_url),), 1),
    ]
    models = [
        Model("wide", Tier.CHAT, "wide", 4_096, description="It says anything."),
        Model("narrow", Tier.AUTOCOMPLETE, "narrow", 4_096),
        Model("vectors", Tier.CHAT, "wide", 4_096, task=Task.EMBEDDING),
        Model("ranks", Tier.CHAT, "wide", 4_096, task=Task.RERANK),
    ]
    if code_tokenizer is not None:
        # first of its tier: requests that name no model, as llama.cpp's clients send, are for it
        # without healing: a prompt is what the client wrote, and the fake engine is forced by no grammar
        fim = FillInTheMiddle(healing=False, min_confidence=0.0)
        models.insert(1, Model("gaps", Tier.AUTOCOMPLETE, "narrow", 4_096, tokenizer=str(code_tokenizer), fim=fim))
    return {
        "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
    }
