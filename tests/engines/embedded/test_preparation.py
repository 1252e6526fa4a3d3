"""An engine whose clients send grammars without end: others are served, leavers used nothing, draining is heard."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from contracts.errors import Overloaded
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.orders import Order, Verdict
from engines.embedded.grammar.spec import schema_spec
from engines.embedded.grammar.trial_process import TrialProcess
from engines.embedded.history import RequestUsage, UsageHistory
from engines.embedded.preparation import MAX_OVERTAKEN, Preparation
from tests.engines.embedded.engine_process import QUESTION, usage_of
from tests.engines.embedded.served import Served, served
from tests.engines.embedded.test_grammar_compiler import ENDLESS
from tests.engines.embedded.tiny import SHIPPED
from tests.processes import executes
from tests.waiting import eventually, eventually_blocking

CHAT = str(SHIPPED / "slipstream-chat")
PATIENT = {"compile_timeout_s": 60}
ENDLESS_TEXT = schema_spec(ENDLESS, "response_format.json_schema", GrammarConfig()).text
UNUSED = {
    "prompt_tokens": 0,
    "total_tokens": 0,
    "completion_tokens": 0,
    "prompt_tokens_details": {"cached_tokens": 0},
    "reasoning_tokens": 0,
}


class Compiles:
    """What trial processes of this process are asked to compile."""

    def __init__(self) -> None:
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        """By the grammar that it was given last."""
        self.deadlines_s: dict[str, float] = {}
        """By grammar; those without one have the engine's."""

    async def of(self, text: str) -> subprocess.Popen[bytes]:
        """The child, once it has the grammar."""
        return await eventually(lambda: self.children.get(text))


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    found, ask = Compiles(), TrialProcess._ask

    def asked(self: TrialProcess, order: Order, left: threading.Event) -> Verdict:
        assert self._child is not None
        found.children[order.text] = self._child
        return ask(self, Order(order.text, found.deadlines_s.get(order.text, order.timeout_s)), left)

    monkeypatch.setattr(TrialProcess, "_ask", asked)
    return found


@pytest.fixture(scope="module")
async def engine() -> AsyncIterator[Served]:
    async with served(model=CHAT, drain_s=60, grammar=PATIENT) as engine:
        yield engine


def ask(
    session: aiohttp.ClientSession, engine: Served, tenant: str, schema: dict[str, Any] | None, **more: Any
) -> asyncio.Task[tuple[int, Any]]:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}} if schema else None
    body = {"model": "slipstream-chat", "messages": QUESTION, "max_tokens": 8, "cache_salt": tenant, **more}

    async def answer() -> tuple[int, Any]:
        asked = {**body, "response_format": form} if form else body
        async with session.post(f"{engine.url}/v1/chat/completions", json=asked) as answer:
            return answer.status, await answer.json()

    return asyncio.create_task(answer())


async def test_a_schema_without_end_is_a_clients_error_and_others_are_served_meanwhile(
    engine: Served, session: aiohttp.ClientSession, compiles: Compiles
) -> None:
    compiles.deadlines_s[ENDLESS_TEXT] = 60.0
    attack = ask(session, engine, "attacker", ENDLESS)
    child = await compiles.of(ENDLESS_TEXT)
    for schema in (
        None,
        {"type": "object", "properties": {"b": {"type": "string"}}},
        {"type": "integer", "minimum": 7},
    ):
        status, _ = await ask(session, engine, "other", schema)
        assert status == 200
    assert child.poll() is None, "it is still at it"
    attack.cancel()
    compiles.deadlines_s[ENDLESS_TEXT] = 0.1
    status, refused = await ask(session, engine, "attacker", ENDLESS)
    assert (status, refused["param"]) == (400, "response_format.json_schema")
    assert "longer than 60 s" in refused["message"]


async def test_a_client_that_leaves_during_a_compile_ends_it_and_used_nothing(
    engine: Served, session: aiohttp.ClientSession, compiles: Compiles
) -> None:
    leaving = ask(session, engine, "a", ENDLESS, rid="req_left")
    child = await compiles.of(ENDLESS_TEXT)
    leaving.cancel()
    await eventually(lambda: child.returncode is not None)

    async def known() -> tuple[int, Any] | None:
        found = await usage_of(session, engine.url, "req_left")
        return None if found[0] == 404 else found

    assert await eventually(known) == (200, {"rid": "req_left", "usage": UNUSED})


async def test_a_request_is_aborted_by_id_during_a_compile(
    engine: Served, session: aiohttp.ClientSession, compiles: Compiles
) -> None:
    aborted = ask(session, engine, "a", ENDLESS, rid="req_aborted")
    child = await compiles.of(ENDLESS_TEXT)
    async with session.post(f"{engine.url}/abort_request", json={"rid": "req_abo"}) as answer:
        assert answer.status == 200
    # so that a gateway whose client is still there may try another engine
    status, _ = await aborted
    assert status == 503
    await eventually(lambda: child.returncode is not None)
    assert await usage_of(session, engine.url, "req_aborted") == (200, {"rid": "req_aborted", "usage": UNUSED})


async def test_draining_ends_a_compile_under_way(session: aiohttp.ClientSession, compiles: Compiles) -> None:
    """Otherwise it would last as long as the compile, which no one has seen end."""
    async with served(model=CHAT, drain_s=60, grammar=PATIENT) as engine:
        refused = ask(session, engine, "a", ENDLESS)
        child = await compiles.of(ENDLESS_TEXT)
        engine.service.stop()  # as SIGTERM does
        assert (await refused)[0] == 503
        await engine.serving
    assert engine.service.failure is None
    await eventually(lambda: child.poll() is not None)


PARENT = """
import sys, threading
from pathlib import Path
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.orders import Order, send
from engines.embedded.grammar.trial_process import TrialProcess
from engines.embedded.grammar.vocabulary import KeptDefinition
trial = TrialProcess(KeptDefinition(Path(sys.argv[1])), 2048, [2], GrammarConfig())
trial.warm()
send(trial._pipes[0], Order(sys.stdin.read(), 0.1))
print(trial._child.pid, flush=True)
threading.Event().wait()
"""
"""An engine that has asked for a compile."""


def test_an_engine_that_is_killed_leaves_no_compile_behind() -> None:
    """The kernel ends a compile whose engine is no longer there to do it, soon after the deadline."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHAT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(ENDLESS_TEXT)
        parent.stdin.close()
        child = int(parent.stdout.readline())
        parent.kill()
    # its new parent, such as a container's first process, need not collect it
    eventually_blocking(lambda: not executes(child))


async def test_of_aborts_that_overtake_their_requests_the_newest_are_known_for_a_while() -> None:
    history = UsageHistory(4)
    preparation = Preparation(history)

    async def prepared(rid: str) -> bool:
        async def work() -> bool:
            return True

        async def never() -> None:
            await asyncio.Event().wait()

        with contextlib.suppress(Overloaded):
            return await preparation.run(rid, work(), lambda _: asyncio.create_task(never()))
        return False

    for number in range(MAX_OVERTAKEN + 1):
        preparation.abort_ahead(f"r{number}")
    assert await prepared("r0"), "the oldest is forgotten"
    assert not await prepared("r1")
    assert history.get("r1") == RequestUsage(0, 0, 0, 0)
    assert await prepared("r1"), "that counts once"
    preparation._overtaken["r2"] = asyncio.get_running_loop().time()
    assert await prepared("r2"), "it is too long ago"
