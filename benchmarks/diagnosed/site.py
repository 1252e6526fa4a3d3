"""A whole deployment whose links can be slowed: gateway, router, worker, PostgreSQL and Valkey as processes of `up`,
paced engines, and an nginx that buffers answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import aiohttp
import msgspec

from benchmarks.diagnosed.load import TENANTS
from benchmarks.diagnosed.paced_engine import MODEL, Pace
from benchmarks.scratch_servers import running
from control.diagnosis.diagnosis import DiagnosisOf, DiagnosisQuery, diagnosed
from control.diagnosis.findings.evidence import Audit
from infra.local.folders import DataFolder
from infra.local.valkey import Valkey
from slipstream.administration import administration
from slipstream.commands.options import running_settings
from slipstream.diagnosis_audit import audited
from tests.deployment import ROOT, Deployment, deployment, fake_fleet
from tests.fakes.slow_link import SlowLink, slow_link
from tests.gateway.stream_audit.nginx import Nginx, nginx

REPLICAS = 3
GENEROUS = ("--requests-per-minute", "1000000", "--tokens-per-minute", "1000000000", "--max-concurrency", "10000")
TIGHT = ("--requests-per-minute", "12", "--tokens-per-minute", "1000000000", "--max-concurrency", "10000")
TOKEN = "benchmark"


class Site:
    """The deployment of a run. Create it with `site`."""

    replicas = REPLICAS

    def __init__(
        self,
        platform: Deployment,
        router: SlowLink,
        valkey: SlowLink,
        proxy: Nginx,
        engines: tuple[str, ...],
        keys: dict[str, str],
        tight: dict[str, str],
        session: aiohttp.ClientSession,
    ) -> None:
        self.platform = platform
        self.router = router
        self.valkey = valkey
        self.session = session
        self.through_proxy = False
        self.limited: str | None = None
        """A tenant whose key has fewer requests a minute than it sends."""
        self._proxy = proxy
        self._engines = engines
        self._keys = keys
        self._tight = tight
        self._outage: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The URL for clients."""
        return self._proxy.url("buffering") if self.through_proxy else self.platform.url

    @property
    def keys(self) -> dict[str, str]:
        """Keys by tenant."""
        return {name: self._tight[name] if name == self.limited else key for name, key in self._keys.items()}

    async def heal(self) -> None:
        """Remove all faults. Caches stay as they are."""
        if self._outage is not None:
            await self._outage
            self._outage = None
        self.router.delay_s = self.valkey.delay_s = 0.0
        self.through_proxy, self.limited = False, None
        await self.pace(Pace())

    def outage(self, link: SlowLink, seconds: float) -> None:
        """Cut a link for `seconds` from now."""

        async def cut() -> None:
            async with link.down():
                await asyncio.sleep(seconds)  # the length of the outage

        self._outage = asyncio.create_task(cut())

    async def pace(self, pace: Pace, replica: int | None = None) -> None:
        """Set the pace of one engine, or of all."""
        for url in self._engines if replica is None else self._engines[replica : replica + 1]:
            async with self.session.post(f"{url}/control", data=msgspec.json.encode(pace)) as response:
                response.raise_for_status()

    async def flush_caches(self) -> None:
        """Empty the caches of all engines, as after their start."""
        for url in self._engines:
            async with self.session.post(f"{url}/flush_cache") as response:
                response.raise_for_status()

    async def audit(self) -> Audit:
        """The path to the client, as `slipstream diagnose --url` measures it."""
        return await audited(self.url, next(iter(self._keys.values())))

    async def traced(self, since: datetime, requests: int) -> None:
        """Return when the traces of `requests` requests have arrived."""
        async with self.platform.database() as connection:
            while True:
                count = await connection.fetchval(
                    "SELECT count(*) FROM gateway.request_traces WHERE recorded_at >= $1", since
                )
                if count >= requests:
                    return
                await asyncio.sleep(0.1)  # another process's state

    async def diagnose(self, query: DiagnosisQuery, audit: Audit | None) -> DiagnosisOf:
        """Diagnose like `slipstream diagnose`."""
        settings = running_settings(None, str(self.platform.data))
        async with administration(settings, "benchmark") as call:
            return await diagnosed(call, query, None, audit)


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """A site that runs until the block ends."""
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        session = await enter(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None))
        )
        engines = await enter(_engines())
        valkey, valkey_port = await enter(_valkey())
        environment = {
            **fake_fleet(*engines, model=MODEL, context_tokens=32_768),
            "SLIPSTREAM_LOCAL__VALKEY_URL": f"redis://127.0.0.1:{valkey_port}",
        }
        platform = await enter(deployment(environment=environment, token=TOKEN, on_disk=True))
        router = await enter(_between_gateway_and_router(platform))
        proxy = await enter(nginx(platform.port))
        keys = {name: await platform.make_key("--organization", name, *GENEROUS) for name in TENANTS}
        tight = {name: await platform.make_key("--organization", name, *TIGHT) for name in TENANTS}
        yield Site(platform, router, valkey, proxy, engines, keys, tight, session)


@contextlib.asynccontextmanager
async def _engines() -> AsyncIterator[tuple[str, ...]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.diagnosed.paced_engine", "--replicas", str(REPLICAS),
        stdout=asyncio.subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        ports = (await process.stdout.readline()).split()[1:]
        yield tuple(f"http://127.0.0.1:{int(port)}" for port in ports)
    finally:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def _valkey() -> AsyncIterator[tuple[SlowLink, int]]:
    """A Valkey of its own behind a link, and the link's port."""
    folder = DataFolder(Path(tempfile.mkdtemp(prefix="slip-")))
    folder.prepare()
    try:
        async with (
            running(Valkey(folder).spec(), folder.log("valkey")),
            slow_link(folder.valkey_socket) as link,
        ):
            yield link
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)


@contextlib.asynccontextmanager
async def _between_gateway_and_router(platform: Deployment) -> AsyncIterator[SlowLink]:
    """Replace the router's socket by a link, to which the gateway reconnects."""
    socket = platform.data / "run" / "router.sock"
    behind = socket.with_name("behind.sock")
    socket.rename(behind)
    async with slow_link(behind, socket) as (link, _):
        name = next(name for name in await platform.processes() if name.startswith("gateway"))
        os.kill(await platform.pid(name), signal.SIGTERM)
        yield link
