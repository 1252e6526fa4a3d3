"""A router, a gateway whose event loop is watched, and a fake engine; the gateway counts every model's tokens."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import asyncpg
import msgspec

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from gateway.auth.keys import mint
from infra.local.folders import DataFolder
from tests.deployment import ROOT, free_port, plain_environment
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.processes import answers, module_process
from tests.temporary import short_folder
from tests.waiting import eventually

ANSWER_S = 600.0
"""A guard against an answer that never comes."""
CONTEXT_TOKENS = 262_144
"""More than most models', so that the corpus' texts are not refused for their bytes but counted."""


class Standstill(msgspec.Struct, frozen=True):
    """One pause of the event loop."""

    wall_s: float
    held_s: float
    """Of it, without the time in which the machine was busy with others, and no more than the process used of CPU."""


class HostilePlatform:
    """Use `hostile_platform`. Models: `chat`, `code` (driver `embedded`), and `strict` (driver `openai`: control tokens
    in texts are looked for)."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        metrics_url: str,
        key: str,
        engine: FakeEngineProcess,
        log: Path,
        gateway: asyncio.subprocess.Process,
    ) -> None:
        self._gateway = gateway
        self.session = session
        self.url = url
        self.metrics_url = metrics_url
        self.key = key
        self.engine = engine
        self._log = log
        self._read = 0

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body. Raises TimeoutError when it does not end."""
        async with (
            asyncio.timeout(ANSWER_S),
            self.session.post(
                self.url + path, data=io.BytesIO(body), headers={"authorization": f"Bearer {self.key}"}
            ) as response,
        ):
            return response.status, await response.read()

    def standstills(self) -> list[Standstill]:
        """Those since the last call."""
        new = self._since(self._read)
        self._read += len(new)
        return new

    async def stand_still(self, pause_s: float) -> None:
        """Hold the gateway's loop; return when it goes on."""
        self._log.with_suffix(".pause").write_text(str(pause_s))
        self._gateway.send_signal(signal.SIGUSR1)
        await eventually(lambda: any(pause.wall_s > pause_s for pause in self._since(self._read)))

    def _since(self, line: int) -> list[Standstill]:
        lines = self._log.read_text().splitlines()[line:]
        return [Standstill(float(wall), float(held)) for wall, held in map(str.split, lines)]

    async def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        async with self.session.get(f"{self.metrics_url}/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@contextlib.asynccontextmanager
async def hostile_platform(postgres_url: str, valkey_url: str) -> AsyncIterator[HostilePlatform]:
    """Started and warm; all of it is gone at the end."""
    folder = short_folder()
    data = DataFolder(folder / "d")
    data.prepare()
    log, router_port, gateway_port, metrics_port = folder / "heart", free_port(), free_port(), free_port()
    log.touch()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        engine = await stack.enter_async_context(fake_engine(token=data.token_file.read_text().strip()))
        environment = {
            **plain_environment(),
            **_fleet(engine.url),
            "SLIPSTREAM_LOCAL__DATABASE_URL": postgres_url,
            "SLIPSTREAM_LOCAL__VALKEY_URL": valkey_url,
            "SLIPSTREAM_ROUTER__PORT": str(router_port),
            "SLIPSTREAM_ROUTER__CONTROL_PORT": "0",
            "SLIPSTREAM_GATEWAY__PORT": str(gateway_port),
            "SLIPSTREAM_GATEWAY__METRICS__PORT": str(metrics_port),
            "SLIPSTREAM_GATEWAY__ROUTER__ADDRESS": f"127.0.0.1:{router_port}",
            "SLIPSTREAM_GATEWAY__LIMITS__KEY_PREFIX": folder.name,
            # a busy machine counts long texts slowly: what holds nobody up may take long
            "SLIPSTREAM_GATEWAY__REQUESTS__PREPARE_TIMEOUT_S": "600",
        }
        place = ("--data", str(data.path))
        await stack.enter_async_context(module_process("slipstream", "router", *place, environment=environment))
        gateway = await stack.enter_async_context(
            module_process("tests.hostile.watched_gateway", str(log), "gateway", *place, environment=environment)
        )
        key = await _key(postgres_url, data.pepper_file.read_text().strip().encode())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        url, metrics_url = f"http://127.0.0.1:{gateway_port}", f"http://127.0.0.1:{metrics_port}"
        platform = HostilePlatform(session, url, metrics_url, key, engine, log, gateway)
        await answers(session, f"{url}/readyz", gateway)
        await _warm(platform)
        yield platform


def _fleet(engine_url: str) -> dict[str, str]:
    models = ROOT / "models"
    chat, code = str(models / "slipstream-chat"), str(models / "slipstream-code")
    served = [
        Model("chat", Tier.CHAT, "embedded", CONTEXT_TOKENS, tokenizer=chat),
        Model("code", Tier.AUTOCOMPLETE, "embedded", CONTEXT_TOKENS, tokenizer=code),
        Model("strict", Tier.CHAT, "openai", CONTEXT_TOKENS, tokenizer=chat),
    ]
    pools = [Pool(driver, driver, (Replica(f"{driver}-1", engine_url),), 1_000) for driver in ("embedded", "openai")]
    return {
        "SLIPSTREAM_MODELS": msgspec.json.encode(served).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
    }


async def _key(postgres_url: str, pepper: bytes) -> str:
    """A key without limits."""
    database = await asyncpg.connect(postgres_url)
    try:
        minted = mint(pepper)
        await database.execute(
            "WITH organization AS (INSERT INTO gateway.organizations (name) VALUES ('hostile ' || gen_random_uuid())"
            " RETURNING id), project AS (INSERT INTO gateway.projects (organization_id, name) SELECT id, 'p' FROM"
            " organization RETURNING id) INSERT INTO gateway.api_keys (project_id, name, hash, display)"
            " SELECT id, 'k', $1, $2 FROM project",
            minted.hash,
            minted.display,
        )
        return minted.secret
    finally:
        await database.close()


async def _warm(platform: HostilePlatform) -> None:
    """Return once the gateway serves every model."""
    for path, body in (
        ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": "x"}]}),
        ("/v1/chat/completions", {"model": "strict", "messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"model": "code", "prompt": "x", "suffix": "y"}),
    ):
        one = msgspec.json.encode({**body, "max_tokens": 1})
        await eventually(functools.partial(_served, platform, path, one))


async def _served(platform: HostilePlatform, path: str, body: bytes) -> bool:
    return (await platform.post(path, body))[0] == 200
