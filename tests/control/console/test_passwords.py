"""Hashes of passwords: the cost of one, and the order of many."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from contracts.errors import ServiceError
from control.api.fair_queue import QueueKey
from control.console import hash_queue
from control.console.hash_queue import (
    MAX_QUEUED,
    MAX_REMEMBERED,
    RECENT_S,
    RETURNING,
    STRANGERS,
    HashQueue,
    QueueFull,
)
from control.console.passwords import THREADS, Passwords
from control.sessions.token import mint
from tests.control.console.browser import ANYWHERE
from tests.control.console.quick_passwords import QuickPasswords
from tests.waiting import eventually

WORDS = "four words in a row"


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    made = Passwords(b"pepper")
    made.start()
    yield made
    made.stop()


class Hashes:
    """Waiting attempts, and those with a hash; each hash takes until it is released, the one that began first."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords
        self.begun: deque[threading.Event] = deque()
        self._over = False
        self.tasks: list[asyncio.Task[None]] = []
        self.done: list[str] = []

    def ask(self, network: str, key: QueueKey | None = None) -> asyncio.Task[None]:
        key = key or self._passwords.queue.key_of(None, network)
        self.tasks.append(asyncio.create_task(self._ask(network, key)))
        return self.tasks[-1]

    async def _ask(self, network: str, key: QueueKey) -> None:
        await self._passwords._on_thread(self._hash, key)
        self.done.append(network)

    def _hash(self) -> None:
        released = threading.Event()
        self.begun.append(released)
        if not self._over:
            released.wait()

    async def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            before = len(self.done)
            await eventually(lambda: self.begun)
            self.begun.popleft().set()
            while len(self.done) == before:
                await asyncio.wait([task for task in self.tasks if not task.done()], return_when="FIRST_COMPLETED")

    def end(self) -> None:
        """Release every hash, or the threads would wait for ever."""
        self._over = True
        self.let_begun_go()

    def let_begun_go(self) -> None:
        while self.begun:
            self.begun.popleft().set()


@pytest.fixture
async def hashes(passwords: Passwords) -> AsyncIterator[Hashes]:
    asked = Hashes(passwords)
    yield asked
    for task in asked.tasks:
        task.cancel()
    await asyncio.gather(*asked.tasks, return_exceptions=True)
    asked.end()


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_hash_costs_what_a_guess_shall_cost(passwords: Passwords) -> None:
    """OWASP's least: 46 MiB and one pass; here two."""
    stored = await passwords.hash(WORDS, ANYWHERE)
    assert stored.startswith("$argon2id$v=19$m=47104,t=2,p=1$")
    assert await passwords.fits(stored, WORDS, ANYWHERE)
    assert not await passwords.fits(stored, WORDS + "!", ANYWHERE)
    assert not await passwords.fits(None, WORDS, ANYWHERE)
    assert not passwords.outdated(stored)
    assert passwords.outdated(QuickPasswords(b"pepper")._hasher.hash(WORDS))


async def test_a_right_password_is_hashed_while_sixty_strange_networks_try(hashes: Hashes) -> None:
    """Fault: 64 waited, first come, and everybody else was asked to come again."""
    for number in range(180):
        hashes.ask(f"stranger {number % 60}")
    await settled()
    honest = hashes.ask("honest")
    await settled()
    assert not honest.done()
    await hashes.let_go(THREADS + 61)
    assert "honest" in hashes.done
    assert max(map(hashes.done.count, hashes.done)) <= 2  # each network once, and two that had begun before


async def test_a_new_network_comes_before_networks_that_have_failed(hashes: Hashes, passwords: Passwords) -> None:
    for number in range(180):
        passwords.queue._failed[f"stranger {number % 60}"] = 1, math.inf
        hashes.ask(f"stranger {number % 60}")
    await settled()
    hashes.ask("honest")
    await settled()
    await hashes.let_go(THREADS + 2)
    assert "honest" in hashes.done


async def test_a_returning_browser_waits_for_one_stranger_at_most(passwords: Passwords, hashes: Hashes) -> None:
    passwords.queue.succeeded(QueueKey(STRANGERS, "office"), "office")
    for number in range(180):
        hashes.ask(f"stranger {number % 60}")
    await settled()
    hashes.ask("office")
    hashes.ask("session", passwords.queue.key_of(mint(b"pepper"), "stranger 7"))
    await settled()
    await hashes.let_go(THREADS + 4)
    assert {"office", "session"} <= set(hashes.done)


async def test_a_full_queue_refuses_the_network_with_most(
    hashes: Hashes, monkeypatch: pytest.MonkeyPatch, passwords: Passwords
) -> None:
    monkeypatch.setattr(hash_queue, "MAX_QUEUED", 6)
    for network in ("x", "x", "a", "a", "a", "b", "b", "c"):  # two of x begin
        hashes.ask(network)
    await settled()
    honest = hashes.ask("honest")
    await settled()
    assert [type(task.exception()) for task in hashes.tasks if task.done()] == [QueueFull]  # one of a
    for refused in ("b", "a"):
        task = hashes.ask(refused)
        await settled()
        assert isinstance(task.exception(), QueueFull)
    another = hashes.ask("another")  # for one of a's or b's two
    returning = hashes.ask("session", QueueKey(RETURNING, "session"))  # a group of its own
    await settled()
    assert not any(each.done() for each in (honest, another, returning))
    third = hashes.ask("third")
    await settled()
    assert not third.done()
    fourth = hashes.ask("fourth")  # each has one
    await settled()
    assert isinstance(fourth.exception(), QueueFull)


async def test_a_full_queue_of_networks_that_have_failed_takes_a_new_one(
    hashes: Hashes, monkeypatch: pytest.MonkeyPatch, passwords: Passwords
) -> None:
    """One attempt of each of many networks, again and again, left no room for anybody else."""
    monkeypatch.setattr(hash_queue, "MAX_QUEUED", 4)
    networks = [f"noisy {number}" for number in range(6)]
    for network in networks:
        hashes.ask(network)
    await settled()
    await hashes.let_go(len(networks))
    for network in networks:
        hashes.ask(network)
    await settled()
    honest = hashes.ask("honest")
    await settled()
    assert not honest.done()
    again = hashes.ask("noisy 0")
    await settled()
    assert isinstance(again.exception(), QueueFull)
    await hashes.let_go(3)  # two had begun
    assert hashes.done[-1] == "honest"


async def test_a_cancelled_attempt_keeps_no_thread(hashes: Hashes, passwords: Passwords) -> None:
    running = [hashes.ask("a") for _ in range(THREADS)]
    waiting = [hashes.ask("b") for _ in range(3)]
    await settled()
    for task in (*running, waiting[0]):
        task.cancel()
    await asyncio.gather(*running, waiting[0], return_exceptions=True)
    assert hashes.done == []
    await eventually(lambda: len(hashes.begun) == THREADS)
    hashes.let_begun_go()  # the threads go on to their hashes' ends
    await hashes.let_go(2)
    assert hashes.done == ["b", "b"]
    assert await passwords._on_thread(lambda: 1, ANYWHERE) == 1


async def test_a_stop_refuses_queued_attempts(hashes: Hashes, passwords: Passwords) -> None:
    waiting = [hashes.ask("a") for _ in range(THREADS + 2)]
    await settled()
    passwords.stop()
    hashes.end()
    await asyncio.wait(waiting)
    with contextlib.suppress(ServiceError):
        assert await passwords.hash(WORDS, ANYWHERE) is None
    assert sorted(type(task.exception()).__name__ for task in waiting) == ["NoneType"] * 2 + ["ServiceError"] * 2


async def test_a_stop_lets_a_thread_that_begins_late_do_its_hash(passwords: Passwords) -> None:
    """Fault: such a hash was cancelled, and with it the request."""
    go_on, passwords._threads = threading.Event(), ThreadPoolExecutor(1)
    passwords._threads.submit(go_on.wait)
    granted = asyncio.create_task(passwords._on_thread(lambda: 1, ANYWHERE))
    await settled()
    passwords.stop()
    go_on.set()
    [done] = await asyncio.gather(granted, return_exceptions=True)
    assert done == 1


async def test_a_network_is_known_for_a_day_and_so_many_are() -> None:
    now_s = 0.0
    queue = HashQueue(2, lambda: now_s)
    stranger = queue.key_of(None, "a")
    assert stranger == QueueKey(STRANGERS, "a")
    await queue.acquire(stranger)
    queue.release()
    assert queue._failures(stranger) == 1
    queue.succeeded(stranger, "a")
    assert queue._failures(stranger) == 0
    assert queue.key_of(None, "a") == QueueKey(RETURNING, "a")
    now_s = RECENT_S
    assert queue.key_of(None, "a") == stranger
    for number in range(MAX_REMEMBERED + 1):
        queue.succeeded(stranger, f"{number}")
    assert queue.key_of(None, "0") == QueueKey(STRANGERS, "0")
    assert queue.key_of(None, "1") == QueueKey(RETURNING, "1")
    assert MAX_QUEUED >= 256  # as many networks as a household has by IPv6
