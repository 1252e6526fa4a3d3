"""Runs on a real PostgreSQL against a gateway over HTTP: whatever is killed between any two steps, every item counts
once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from contracts.desired_state import Model, Pool
from contracts.generation import Tier
from control.eval_runs.config import EvalsConfig
from control.eval_runs.runner import Runner
from control.evals import store
from evals.slices.item import Item, Source
from evals.slices.split import Split
from gateway.desired import document
from storage.engine import connect
from storage.tables.evals import ENDED, Decision, Status
from tests.control.eval_runs.answering import KEY, Gateway, Numbers, Refused, gateway
from tests.control.killable import GUARD_S, Killable, working
from tests.examples import examples
from tests.waiting import eventually

SLICES: dict[str, Source] = {"one": Numbers("one"), "two": Numbers("two"), "short": Numbers("short", 5)}
CONFIG = EvalsConfig(at_once=3, lease_s=30, patience_s=20)
Connection = Any


class Read(Numbers):
    def item(self, seed: int, split: Split = Split.HELD_OUT) -> Item:
        """Right where the answer is the seed."""
        return dataclasses.replace(super().item(seed), check=lambda answer: float(json.loads(answer) == seed))


async def key_of(refused: str) -> str:
    return KEY


def find(name: str) -> Source:
    return SLICES[name]


@pytest.fixture(scope="module")
async def connection(module_postgres_url: str) -> AsyncIterator[Connection]:
    """To a database whose fleet serves the model `chat` on `old`, with another pool `new`."""
    connection = await connect(module_postgres_url)
    fleet = document.encode((Model("chat", Tier.CHAT, "old", 4_096),), (Pool("old", "sglang"), Pool("new", "sglang")))
    await connection.execute("INSERT INTO gateway.desired_states (version, document) VALUES (1, $1)", fleet)
    yield connection
    await connection.close()


class KillableRuns(Killable, Runner):
    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.idle = asyncio.Event()

    async def _until_idle(self, stop: asyncio.Event) -> None:
        await super()._until_idle(stop)
        self.idle.set()


async def killed(runner: KillableRuns) -> None:
    """Work until it is dead or has nothing to do, and leave as a killed process does: giving nothing back."""
    due, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(runner.run(due, stop))
    dead = asyncio.create_task(runner.dead.wait())
    idle = asyncio.create_task(runner.idle.wait())
    await asyncio.wait((task, dead, idle), return_when=asyncio.FIRST_COMPLETED, timeout=GUARD_S)
    for each in (task, dead, idle):
        each.cancel()
    await asyncio.wait((task, dead, idle))


def runner_of(url: str, asked: Gateway, config: EvalsConfig = CONFIG) -> KillableRuns:
    return KillableRuns(url, asked.url, config, key_of, find)


async def ended(connection: Connection, read: Callable[..., Any], which: UUID) -> Any:
    return await seen(lambda: read(connection, which), lambda found: found.status in ENDED)


async def seen(read: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> Any:
    """What is read, once this holds of it."""

    async def found() -> Any:
        value = await read()
        return value if holds(value) else None

    return await eventually(found)


async def queued(connection: Connection, **more: Any) -> UUID:
    made = await store.queue_run(connection, model="chat", **{"slices": {"one": 4}, "first_seed": 100, **more})
    assert made is not None
    return made


async def rows_of(connection: Connection, run_id: UUID) -> list[tuple[str, int, float]]:
    rows = await connection.fetch("SELECT slice, seed, score FROM evals.items WHERE run_id = $1 ORDER BY 1, 2", run_id)
    return [tuple(row) for row in rows]


async def test_a_run_asks_every_item_once_and_a_slice_with_an_end_goes_round(
    connection: Connection, module_postgres_url: str
) -> None:
    run_id = await queued(connection, slices={"one": 4, "short": 9}, first_seed=13)
    async with gateway(lambda pool, name, seed: str(seed if seed != 14 else 0)) as asked:
        asked.together = asyncio.Barrier(CONFIG.at_once)
        async with working(runner_of(module_postgres_url, asked)):
            run = await ended(connection, store.run, run_id)
        assert set(asked.asked.values()) == {1}
        assert asked.most_in_flight == CONFIG.at_once
    assert (run.status, run.answered, run.engine_model, run.error) == (Status.DONE, 9, "chat", None)
    expected = [("one", seed, float(seed != 14)) for seed in range(13, 17)] + [
        ("short", seed, 1.0) for seed in range(5)
    ]
    assert await rows_of(connection, run_id) == expected
    progress = {one.slice: (one.slice_version, one.score_sum) for one in await store.slices_of(connection, run_id)}
    assert progress == {"one": ("1", 3.0), "short": ("1", 5.0)}


@given(
    deaths=st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4),
    compared=st.booleans(),
)
@examples(nightly=40, gate=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_killed_between_any_two_steps_it_goes_on_and_counts_every_item_once(
    connection: Connection, module_postgres_url: str, deaths: list[tuple[int, bool]], compared: bool
) -> None:
    await connection.execute("DELETE FROM evals.comparisons")
    await connection.execute("DELETE FROM evals.runs")
    async with gateway(lambda pool, name, seed: str(seed if (pool, seed % 7) != ("new", 0) else -1)) as asked:
        runs, read, which = [], store.run, UUID(int=0)
        if compared:
            rule = store.Rule(first_look=4)
            which = await store.queue_comparison(
                connection, model="chat", baseline_pool="old", candidate_pool="new", slices=["one", "short"],
                budget=16, rule=rule, first_seed=100,
            )  # fmt: skip
            found = await store.comparison(connection, which)
            runs, read = [found.baseline_run, found.candidate_run], store.comparison  # type: ignore[assignment]
        else:
            which = await queued(connection, slices={"one": 7, "two": 3}, pool="old")
            runs = [which]
        for last_step, before in deaths:
            runner = runner_of(module_postgres_url, asked)
            runner.last_step, runner.before = last_step, before
            await killed(runner)
            await connection.execute(
                "UPDATE evals.runs SET lease_until = now() - interval '1 s' WHERE lease_id IS NOT NULL"
            )
            await connection.execute(
                "UPDATE evals.comparisons SET lease_until = now() - interval '1 s' WHERE lease_id IS NOT NULL"
            )
        async with working(runner_of(module_postgres_url, asked)):
            over = await ended(connection, read, which)
    assert over.status is Status.DONE, over.error
    for run_id in runs:
        wanted = {one.slice: one.items for one in await store.slices_of(connection, run_id)}
        run = await store.run(connection, run_id)
        expected = []
        for name, count in wanted.items():
            seeds = range(100, 100 + count) if name != "short" else range(min(count, 5))
            expected += [(name, seed, float((run.pool, seed % 7) != ("new", 0))) for seed in seeds]
        assert await rows_of(connection, run_id) == sorted(expected)
    if compared:
        assert over.decision is not None
        assert over.verdict is not None
        assert {one["slice"] for one in over.verdict["slices"]} == {"one", "short"}


async def test_two_workers_never_have_the_same_run(connection: Connection, module_postgres_url: str) -> None:
    ids = [await queued(connection, first_seed=100 * number) for number in range(6)]
    async with gateway(lambda pool, name, seed: str(seed)) as asked:
        runners = [runner_of(module_postgres_url, asked) for _ in range(3)]
        async with contextlib.AsyncExitStack() as stack:
            for runner in runners:
                await stack.enter_async_context(working(runner))
            for run_id in ids:
                assert (await ended(connection, store.run, run_id)).status is Status.DONE
        assert set(asked.asked.values()) == {1}


async def test_full_and_failing_gateways_are_asked_again_and_what_the_model_cannot_take_scores_nothing(
    connection: Connection, module_postgres_url: str
) -> None:
    script = {
        100: [Refused(503, "overloaded", "0.01"), Refused(429, "rate_limit_exceeded"), Refused(502, "engine_failed")]
    }

    def answer(pool: str, name: str, seed: int) -> str:
        if script.get(seed):
            raise script[seed].pop(0)
        if seed == 102:
            raise Refused(400, "context_length_exceeded")
        return str(seed)

    run_id = await queued(connection)
    async with gateway(answer) as asked:
        async with working(runner_of(module_postgres_url, asked)):
            assert (await ended(connection, store.run, run_id)).status is Status.DONE
        assert asked.asked["", "one", 100] == 4
        assert asked.asked["", "one", 102] == 1
    assert [score for *_, score in await rows_of(connection, run_id)] == [1.0, 1.0, 0.0, 1.0]
    code = await connection.fetchval("SELECT error_code FROM evals.items WHERE run_id = $1 AND seed = 102", run_id)
    assert code == "context_length_exceeded"
    assert [one.refused_items for one in await store.slices_of(connection, run_id)] == [1]


@pytest.mark.parametrize("answer", ["9" * 5_000, "[" * 100_000], ids=["digits", "brackets"])
async def test_an_answer_that_cannot_be_read_scores_nothing_and_ends_no_run(
    connection: Connection, module_postgres_url: str, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setitem(SLICES, "read", Read("read"))
    run_id = await queued(connection, slices={"read": 2}, first_seed=0)
    async with (
        gateway(lambda pool, name, seed: answer if seed else "0") as asked,
        working(runner_of(module_postgres_url, asked)),
    ):
        run = await ended(connection, store.run, run_id)
    assert (run.status, run.error) == (Status.DONE, None)
    assert await rows_of(connection, run_id) == [("read", 0, 1.0), ("read", 1, 0.0)]


async def test_what_cannot_be_answered_fails_with_a_sentence_and_keeps_what_was(
    connection: Connection, module_postgres_url: str
) -> None:
    def answer(pool: str, name: str, seed: int) -> str:
        if seed == 103:
            raise Refused(403, "model_not_allowed")
        return str(seed)

    refused, unknown = await queued(connection), await queued(connection, pool="nowhere")
    config = EvalsConfig(at_once=1, patience_s=20)
    async with gateway(answer) as asked, working(runner_of(module_postgres_url, asked, config)):
        run = await ended(connection, store.run, refused)
        assert (run.status, run.answered) == (Status.FAILED, 3)
        assert "refuses an item of one on the pool that the router chooses (old is the model's own): HTTP" in run.error
        assert "403, model_not_allowed: no (`slipstream requests show req_103` shows more)" in run.error
        run = await ended(connection, store.run, unknown)
        assert (run.status, run.error) == (Status.FAILED, "There is no pool 'nowhere'; pools: old, new.")


async def test_an_engine_that_does_not_know_the_model_is_not_asked_for_the_whole_patience(
    connection: Connection, module_postgres_url: str
) -> None:
    def answer(pool: str, name: str, seed: int) -> str:
        raise Refused(502, "engine_failed")

    run_id = await queued(connection, pool="new")
    config = EvalsConfig(at_once=1, patience_s=900)
    async with gateway(answer) as asked, working(runner_of(module_postgres_url, asked, config)):
        run = await ended(connection, store.run, run_id)
    assert (run.status, run.answered) == (Status.FAILED, 0)
    assert "failed 6 times at an item of one on pool new: HTTP 502, engine_failed" in run.error
    assert "`slipstream requests show req_100`" in run.error
    assert asked.asked["new", "one", 100] == 6


async def test_a_run_that_waits_long_is_told_of_once_in_the_log(
    connection: Connection, module_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(pool: str, name: str, seed: int) -> str:
        raise Refused(503, "no_engine", "50")

    run_id = await queued(connection, pool="new")
    config = EvalsConfig(at_once=3, lease_s=2, patience_s=900)
    async with gateway(answer) as asked, working(runner_of(module_postgres_url, asked, config)):
        asked.together = asyncio.Barrier(config.at_once)
        await seen(_warnings_of(caplog), bool)
        await store.cancel_run(connection, run_id)
        await ended(connection, store.run, run_id)
    (told,) = await _warnings_of(caplog)()
    assert told.startswith(f"evals: run {run_id} waits: {asked.url}/v1/chat/completions does not answer an item of one")
    assert "on pool new: HTTP 503, no_engine: no (`slipstream requests show req_10" in told
    assert told.endswith(" UTC (evals.patience_s is 900), then the run fails")


def _warnings_of(caplog: pytest.LogCaptureFixture) -> Callable[[], Awaitable[list[str]]]:
    async def read() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]

    return read


async def test_a_key_that_is_refused_is_replaced_once(connection: Connection, module_postgres_url: str) -> None:
    asked_for: list[str] = []

    async def another(refused: str) -> str:
        asked_for.append(refused)
        return KEY if refused else "sk-slip-revoked"

    run_id = await queued(connection)
    async with (
        gateway(lambda pool, name, seed: str(seed)) as asked,
        working(Runner(module_postgres_url, asked.url, CONFIG, another, find)),
    ):
        assert (await ended(connection, store.run, run_id)).status is Status.DONE
    assert asked_for == ["", "sk-slip-revoked"]


async def test_a_cancelled_run_ends_with_what_was_answered(connection: Connection, module_postgres_url: str) -> None:
    run_id = await queued(connection, slices={"one": 100})
    config = EvalsConfig(at_once=1, lease_s=2)

    def once(pool: str, name: str, seed: int) -> str:
        asked.together = asyncio.Barrier(2)  # the next one waits until its run is cancelled
        return str(seed)

    async with gateway(once) as asked, working(runner_of(module_postgres_url, asked, config)):
        await seen(lambda: store.run(connection, run_id), lambda run: run.answered > 0)
        await store.cancel_run(connection, run_id)
        run = await ended(connection, store.run, run_id)
    assert run.status is Status.CANCELLED
    assert 1 == run.answered == len(await rows_of(connection, run_id))


async def test_a_worker_that_is_stopped_gives_its_run_to_the_next_at_once(
    connection: Connection, module_postgres_url: str
) -> None:
    run_id = await queued(connection, slices={"one": 300})
    async with gateway(lambda pool, name, seed: str(seed)) as asked:
        async with working(runner_of(module_postgres_url, asked)):
            await seen(lambda: store.run(connection, run_id), lambda run: run.answered > 0)
        run = await store.run(connection, run_id)
        assert (run.status, run.answered < 300) == (Status.RUNNING, True)
        async with working(runner_of(module_postgres_url, asked)):
            assert (await ended(connection, store.run, run_id)).answered == 300


async def test_a_worse_candidate_fails_and_an_equal_one_passes(
    connection: Connection, module_postgres_url: str
) -> None:
    async with (
        gateway(lambda pool, name, seed: str(-1 if pool == "new" and name == "two" and seed % 2 else seed)) as asked,
        working(runner_of(module_postgres_url, asked)) as due,
    ):
        for name, decision in (("one", Decision.PASS), ("two", Decision.FAIL), ("short", Decision.INCONCLUSIVE)):
            rule = store.Rule(margin=0.2, first_look=40)
            which = await store.queue_comparison(
                connection,
                model="chat",
                baseline_pool="old",
                candidate_pool="new",
                slices=[name],
                budget=160,
                rule=rule,
            )
            due.set()
            found = await ended(connection, store.comparison, which)
            assert found.decision is decision, found.verdict


def _has(answered: int, run: store.Run) -> bool:
    return run.answered >= answered


async def test_a_database_that_goes_away_for_a_moment_costs_nothing(
    connection: Connection, module_postgres_url: str
) -> None:
    run_id = await queued(connection, slices={"one": 200})
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slipstream-evals'"
    async with gateway(lambda pool, name, seed: str(seed)) as asked, working(runner_of(module_postgres_url, asked)):
        for answered in range(20, 180, 40):
            await seen(functools.partial(store.run, connection, run_id), functools.partial(_has, answered))
            await connection.execute(ends)
        run = await ended(connection, store.run, run_id)
    assert (run.status, run.answered, run.error) == (Status.DONE, 200, None)
