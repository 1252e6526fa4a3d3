"""Tasks that must move within seconds run beside a worker's other work, and count like it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery, signals
from prometheus_client import CollectorRegistry

from contracts.loop_thread import LoopThread
from slipstream.prompt_tasks import PromptTasks
from slipstream.worker_metrics import WorkerMetrics
from slipstream.worker_process import WorkerProcess
from tests.waiting import GUARD_S, eventually_blocking

PERIOD_S = 0.001


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry)
    metrics.follow(())
    yield registry
    signals.task_prerun.disconnect(metrics._began)
    signals.task_postrun.disconnect(metrics._ended)


def ended(registry: CollectorRegistry, task: str, state: str) -> float:
    return registry.get_sample_value("slipstream_worker_tasks_total", {"task": task, "state": state}) or 0.0


def test_each_runs_again_and_again_in_one_thread_and_a_failure_stops_none(registry: CollectorRegistry) -> None:
    app, threads = Celery("test", broker="memory://"), set()

    @app.task(name="fails", shared=False)  # type: ignore[untyped-decorator]
    def fails() -> None:
        raise OSError("the database is away")

    @app.task(name="works", shared=False)  # type: ignore[untyped-decorator]
    def works() -> None:
        threads.add(threading.current_thread())

    @app.task(name="exits", shared=False)  # type: ignore[untyped-decorator]
    def exits() -> None:
        exited.append(True)
        raise SystemExit(1)

    exited: list[bool] = []
    prompt = PromptTasks(app, {"fails": PERIOD_S, "exits": PERIOD_S, "works": PERIOD_S})
    prompt.start()
    eventually_blocking(lambda: len(exited) >= 2)
    eventually_blocking(lambda: ended(registry, "fails", "FAILURE") >= 2 and ended(registry, "works", "SUCCESS") >= 2)
    prompt.stop()
    prompt.stop()
    assert len(threads) == 1
    assert threads.isdisjoint({threading.main_thread()})
    assert not any(thread.is_alive() for thread in threads)


def test_they_run_while_the_slot_of_the_worker_is_taken(registry: CollectorRegistry) -> None:
    app, free = Celery("test", broker="memory://"), threading.Event()

    @app.task(name="upkeep", shared=False)  # type: ignore[untyped-decorator]
    def upkeep() -> None:
        free.wait()

    @app.task(name="release", shared=False)  # type: ignore[untyped-decorator]
    def release() -> None: ...

    slot = threading.Thread(target=lambda: app.tasks["upkeep"].apply())
    slot.start()
    prompt = PromptTasks(app, {"release": PERIOD_S})
    prompt.start()
    eventually_blocking(lambda: ended(registry, "release", "SUCCESS") >= 3)
    assert ended(registry, "upkeep", "SUCCESS") == 0
    free.set()
    slot.join()
    prompt.stop()
    assert ended(registry, "upkeep", "SUCCESS") == 1


def test_one_that_takes_long_delays_itself_alone_by_no_queue_of_runs() -> None:
    """What was due meanwhile is one run, not one for every missed period."""
    app, now_s, runs = Celery("test", broker="memory://"), [0.0], []

    @app.task(name="slow", shared=False)  # type: ignore[untyped-decorator]
    def slow() -> None:
        runs.append(now_s[0])
        now_s[0] += 35.0
        if len(runs) == 3:
            prompt._stopped.set()

    prompt = PromptTasks(app, {"slow": 10.0}, clock=lambda: now_s[0])
    prompt.start()
    eventually_blocking(lambda: not prompt._thread.is_alive())
    assert runs == [0.0, 35.0, 70.0]


def test_without_any_nothing_runs() -> None:
    prompt = PromptTasks(Celery("test", broker="memory://"), {})
    prompt.stop()
    prompt.start()
    prompt.stop()


def test_a_task_that_still_runs_does_not_keep_batches_from_stopping(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Fault: a look at a release used up five of the nine seconds in which batches return their leases."""
    monkeypatch.setattr("slipstream.prompt_tasks.JOIN_S", 2 * GUARD_S)
    app, runs, told, found = Celery("test", broker="memory://"), threading.Event(), threading.Event(), list[bool]()

    @app.task(name="release", shared=False)  # type: ignore[untyped-decorator]
    def release() -> None:
        runs.set()
        found.append(told.wait(GUARD_S))

    async def work(_due: asyncio.Event, stop: asyncio.Event) -> None:
        await stop.wait()
        told.set()

    batches, prompt = LoopThread("batches", work, GUARD_S), PromptTasks(app, {"release": GUARD_S})
    process = WorkerProcess(app, prompt, (batches,), tmp_path / "ready", (), GUARD_S)
    batches.wake()
    prompt.start()
    runs.wait(GUARD_S)
    process._leave()
    assert found == [True]
