"""docs/guides/deploy.md, by its own lines: each process alone on an empty folder, then all of them together."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeAlias

import asyncpg
import msgspec
import pytest

from infra.local.folders import APPLICATION_ROLE
from tests.control.api.receiver import receiver
from tests.databases import OWNER
from tests.deployment import ROOT, free_port
from tests.processes import while_running
from tests.slipstream.guide import EACH_LINE, Block, Reader, blocks, reader, shell_blocks
from tests.waiting import GUARD_S, eventually

pytestmark = pytest.mark.system

PAGE = ROOT / "docs" / "guides" / "deploy.md"
FAST = {
    "SLIPSTREAM_GATEWAY__ADMIN__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES": "true",
    "SLIPSTREAM_WORKER__ROLL_UP_EVERY_S": "1",
    "SLIPSTREAM_SLO__ROLL_UP_EVERY_S": "1",
    "SLIPSTREAM_WORKER__LEDGER__RECONCILE_EVERY_S": "1",
    "SLIPSTREAM_WORKER__LEDGER__WINDOW_S": "0",
    "SLIPSTREAM_WORKER__LEDGER__SETTLE_S": "0",
}
"""So that what is done every minute or hour is seen; the rest is as the page says."""

ENDED = {0, -signal.SIGTERM}
"""What supervisors take for a clean end: a gateway that has finished ends by the signal that it was told to end by."""
CONFIG = "--config slipstream.toml"
QUESTIONS: dict[str, dict[str, Any]] = {
    "chat/completions": {
        "model": "slipstream-chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4,
    },
    "completions": {"model": "slipstream-code", "prompt": "def add(a, b):", "max_tokens": 4},
}  # fmt: skip
Connection: TypeAlias = "asyncpg.Connection[Any]"


@pytest.fixture
async def connection(empty_postgres_url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(empty_postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def operator(empty_postgres_url: str, valkey_url: str) -> AsyncIterator[Reader]:
    """Somebody who has written the page's settings into a file, with addresses of this machine."""
    async with reader(**FAST) as person:
        person.install()
        ports = {name: str(free_port()) for name in ("router", "control", "chat", "code")}
        person.replaced = {
            "/var/lib/slipstream": str(person.folder / "data"),
            "/opt/slipstream/models": str(ROOT / "models"),
            "postgresql://slipstream_app:…@db:5432/slipstream": empty_postgres_url.replace(OWNER, APPLICATION_ROLE, 1),
            "postgresql://slipstream:…@db:5432/slipstream": empty_postgres_url,
            "redis://valkey:6379/0": valkey_url,
            "0.0.0.0": "127.0.0.1",
            "router:8100": f"127.0.0.1:{ports['router']}",
            "[router]": f"[router]\nport = {ports['router']}\ncontrol_port = {ports['control']}",
            "engines:30000": f"127.0.0.1:{ports['chat']}",
            "engines:30001": f"127.0.0.1:{ports['code']}",
            "--port 30000": f"--port {ports['chat']}",
            "--port 30001": f"--port {ports['code']}",
        }
        settings = "\n".join([block.text for block in blocks(PAGE) if block.language == "toml"][:2])
        for word, own in person.replaced.items():
            assert word in settings or word in PAGE.read_text(), word
            settings = settings.replace(word, own)
        (person.folder / "slipstream.toml").write_text(settings)
        yield person


async def test_every_process_of_the_page_starts_alone_works_and_stops(operator: Reader, connection: Connection) -> None:
    migrate, config_check = (_block(line) for line in ("slipstream config migrate up", "slipstream config check"))
    assert "settings are valid" in await operator.paste(config_check)
    await operator.paste(migrate)
    lines = [line for block in shell_blocks(PAGE) if block.note == EACH_LINE for line in block.text.splitlines()]
    router_port = int(operator.replaced["router:8100"].partition(":")[2])
    gateway = f"http://127.0.0.1:{operator.ports['8000']}"
    signs: dict[str, Callable[[], Any]] = {
        "slipstream router": lambda: _accepts(router_port),
        "slipstream gateway": lambda: _answers(f"{gateway}/healthz"),
        "slipstream worker": lambda: _rolled_up_twice(connection),
    }
    for line in lines[:3]:
        (sign,) = [sign for name, sign in signs.items() if line.startswith(name)]
        process = await operator.start(line)
        await eventually(while_running(process, sign))
        assert await _stopped(process) in ENDED, line
        shutil.rmtree(operator.folder / "data")

    everything = [await operator.start(line) for line in lines]
    await eventually(while_running(everything[0], lambda: _answers(f"{gateway}/readyz")))
    async with receiver() as server:
        key = (
            await operator.paste(
                _told(f"slipstream keys create --create-missing --organization acme --project web {CONFIG}")
            )
        ).strip()
        webhooks = f"slipstream customers webhooks create {server.url} --organization acme {CONFIG}"
        await operator.paste(_told(webhooks))
        secret = re.search(r"sk-slip-\w+", key)
        assert secret is not None
        for path, body in QUESTIONS.items():
            await eventually(
                while_running(everything[0], partial(_served, f"{gateway}/v1/{path}", secret.group(), body))
            )
        test = await operator.paste(
            _told(f"slipstream customers webhooks test {server.url} --organization acme {CONFIG}")
        )
        await eventually(while_running(everything[2], lambda: bool(server.came)))
        assert server.came[0].event["type"] == "webhook.test", test
    await eventually(
        while_running(everything[2], lambda: _holds(connection, "SELECT sum(requests) >= 2 FROM gateway.usage_hourly"))
    )
    reconciled = "SELECT count(DISTINCT replica_id) = 2 FROM gateway.reconciliations"
    await eventually(while_running(everything[2], lambda: _holds(connection, reconciled)))
    assert set(await asyncio.gather(*map(_stopped, everything))) <= ENDED


def _block(begin: str) -> Block:
    (found,) = [block for block in shell_blocks(PAGE) if block.text.startswith(begin)]
    return found


def _told(line: str) -> Block:
    return Block("the test", 0, "sh", line + "\n", "")


async def _stopped(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGTERM)
    return await asyncio.wait_for(process.wait(), GUARD_S)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def _answers(url: str) -> bool:
    return await asyncio.to_thread(_ask, url)


async def _served(url: str, secret: str, body: dict[str, Any]) -> bool:
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    return await asyncio.to_thread(_ask, urllib.request.Request(url, msgspec.json.encode(body), headers))


def _ask(what: str | urllib.request.Request) -> bool:
    try:
        with urllib.request.urlopen(what, timeout=GUARD_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def _holds(connection: Connection, question: str) -> bool:
    return bool(await connection.fetchval(question))


async def _rolled_up_twice(connection: Connection) -> bool:
    """At its start, and by its schedule."""
    return await _holds(connection, "SELECT count(*) > 1 FROM gateway.usage_roll_up_runs")
