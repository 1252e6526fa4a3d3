"""Fixtures for all tests: a real PostgreSQL and a real Valkey, started by the product's supervisor."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path

import asyncpg
import pytest
from _pytest.nodeid import NodeId

from infra.local.child import Child
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.postgres import Postgres
from infra.local.valkey import Valkey
from tests.databases import OWNER, Databases, migrated, url
from tests.examples import register_profiles
from tests.group_order import scheduling_order
from tests.pending_tasks import require_no_new_tasks
from tests.sglang.server import MODELS, SGLangServer, settings, sglang_server
from tests.temporary import short_folder

register_profiles()
# PyTorch computes in one thread, here and in processes that tests start: each of two xdist workers has one core, and
# with a second thread, training a small head took 25 times the CPU. This must run before a conftest imports PyTorch.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests of a file in one xdist worker, so that module fixtures start once. Files that share a costly
    fixture name a common `xdist_group`; a folder's conftest may do so in this hook, which runs first."""
    if item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_configure(config: pytest.Config) -> None:
    """Let xdist's scheduler take groups in the order of `pytest_collection_modifyitems`."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Append the group to the test's name, where xdist's scheduler reads it. xdist 3.8 writes it to an attribute that
    pytest 9.2 no longer reads (pytest-xdist issue 1386), so every test would be its own group."""
    if not getattr(config.option, "loadgroup", False):
        return
    groups = []
    for item in items:
        marker = item.get_closest_marker("xdist_group")
        assert marker is not None  # pytest_itemcollected
        groups.append(marker.args[0])
        if not item.nodeid.endswith(f"@{marker.args[0]}"):
            item._id = NodeId.parse(f"{item.nodeid}@{marker.args[0]}")
    if not config.pluginmanager.has_plugin("tests.random_order"):
        items[:] = [items[at] for at in scheduling_order(groups)]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide imported modules and collected tests from the garbage collector: a full collection of them takes a second,
    and none is garbage before the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
async def _no_pending_tasks(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Each module must end the tasks that it starts. System tests and tests of real engines are exempt, because they
    share deployments, engines and browsers."""
    before = asyncio.all_tasks()
    yield
    if request.node not in _modules_on_deployments(request.session):
        await require_no_new_tasks(before)


@functools.cache
def _modules_on_deployments(session: pytest.Session) -> set[pytest.Module | None]:
    marks = "system", "sglang", "vllm"
    return {item.getparent(pytest.Module) for item in session.items if any(map(item.get_closest_marker, marks))}


@pytest.fixture(scope="session")
def services_folder() -> Iterator[DataFolder]:
    """The data folder of the session's servers."""
    path = short_folder()
    folder = DataFolder(path)
    folder.prepare()
    yield folder
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
async def postgres_server(services_folder: DataFolder) -> AsyncIterator[Path]:
    """A running PostgreSQL; the value is its socket folder (the `host` of a URL)."""
    postgres = Postgres(services_folder, LocalConfig(), durable=False)
    postgres.prepare()
    child = Child(postgres.spec(), services_folder.log("postgres"))
    child.start()
    await child.ready()
    await _without_autovacuum(services_folder.postgres_socket)
    yield services_folder.postgres_socket
    await child.stop()
    postgres.close()


@pytest.fixture(scope="session")
async def valkey_server(services_folder: DataFolder) -> AsyncIterator[Path]:
    """A running Valkey; the value is its socket."""
    child = Child(Valkey(services_folder).spec(), services_folder.log("valkey"))
    child.start()
    await child.ready()
    yield services_folder.valkey_socket
    await child.stop()


@pytest.fixture(scope="session")
def valkey_url(valkey_server: Path) -> str:
    """URL of the session's Valkey, which tests share: each uses its own keys."""
    return f"unix://{valkey_server}"


@pytest.fixture(scope="session")
async def databases(postgres_server: Path) -> AsyncIterator[Databases]:
    """The session's databases."""
    made = await migrated(postgres_server)
    yield made
    await made.close()


@pytest.fixture(scope="session")
async def postgres_url(databases: Databases) -> str:
    """URL of a migrated database shared by the session."""
    return await databases.copy()


@pytest.fixture(scope="session")
def new_postgres_url(databases: Databases) -> Callable[[], Awaitable[str]]:
    """Makes migrated databases, for platforms that several test files share: a gateway writes its models into its
    database, and other gateways must not follow them."""
    return databases.copy


@pytest.fixture(scope="module")
async def module_postgres_url(databases: Databases) -> AsyncIterator[str]:
    """URL of a migrated database that only this test module uses."""
    taken = await databases.take()
    yield taken
    await databases.give_back(taken)


@pytest.fixture
async def fresh_postgres_url(databases: Databases) -> AsyncIterator[str]:
    """URL of a migrated, empty database that only this test uses."""
    taken = await databases.take()
    yield taken
    await databases.give_back(taken)


@pytest.fixture
async def empty_postgres_url(databases: Databases) -> str:
    """URL of a database without tables, for tests of the migrations."""
    return await databases.copy("template1", OWNER)


@pytest.fixture
def data_folder() -> Iterator[Path]:
    """An absent data folder with a short path."""
    path = short_folder()
    yield path / "d"
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
async def sglang(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SGLangServer]:
    """The real SGLang with the chat model and a template that renders tools. tests/sglang/server.py lists its needs."""
    if settings() is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    from tests.sglang.fleet import with_tools_template

    folder = with_tools_template(MODELS / "slipstream-chat", tmp_path_factory.mktemp("model"))
    async with sglang_server(folder, "tiny", "engine-token") as server:
        yield server


async def _without_autovacuum(server: Path) -> None:
    """Turn autovacuum off. Its transactions, in any database of the server, hold back the horizon below which requests
    and events are read, so that a test's first read would miss its own rows."""
    connection = await asyncpg.connect(url(server, "postgres", OWNER))
    await connection.execute("ALTER SYSTEM SET autovacuum = off")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
