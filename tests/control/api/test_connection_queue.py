"""Connections of the admin API: half of them for each organization at most, and one for operators alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import RateLimited
from control.api.config import AdminConfig
from control.api.connection_queue import MAX_CALLERS, OPERATORS, CallerKeys, ConnectionQueue, key_of, stranger
from control.api.fair_queue import QueueKey
from storage.roles import Role
from tests.control.api.people import People
from tests.control.api.principals import principal
from tests.control.api.test_read_places import BY_NAME, gateway, locked, waiting_for_locks
from tests.examples import examples
from tests.waiting import GUARD_S, eventually

ACME, MALLORY = QueueKey("acme"), QueueKey("mallory")


class Held:
    """Turns that last until they are ended."""

    def __init__(self, connections: int) -> None:
        self.queue = ConnectionQueue(connections)
        self.under_way: Counter[QueueKey] = Counter()
        self.served: list[QueueKey] = []
        self._ends: dict[QueueKey, list[asyncio.Event]] = {}

    async def ask(self, key: QueueKey) -> None:
        async with self.queue.connection(key):
            self.under_way[key] += 1
            self.served.append(key)
            end = asyncio.Event()
            self._ends.setdefault(key, []).append(end)
            try:
                await end.wait()
            finally:
                self.under_way[key] -= 1

    async def end(self, key: QueueKey) -> None:
        self._ends[key].pop(0).set()
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def asking() -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_half_each_and_one_for_operators(asking: list[asyncio.Task[None]]) -> None:
    held = Held(4)
    asking += [asyncio.create_task(held.ask(MALLORY)) for _ in range(200)]
    asking += [asyncio.create_task(held.ask(ACME)) for _ in range(2)]
    asking += [asyncio.create_task(held.ask(OPERATORS)) for _ in range(2)]
    await settled()
    assert held.under_way == Counter({MALLORY: 2, ACME: 1, OPERATORS: 1})
    for following in (MALLORY, ACME, OPERATORS):  # whose turn it is as one of mallory's ends
        await held.end(MALLORY)
        assert held.served[-1] == following


async def test_a_program_delays_the_others_of_its_organization_by_a_turn(asking: list[asyncio.Task[None]]) -> None:
    """Fault: an owner could not revoke a key, because all requests of the organization were in one line."""
    for operator in (False, True):
        program, owner = (key_of(principal(number=number, operator=operator)) for number in (1, 2))
        held = Held(4)
        asking += [asyncio.create_task(held.ask(program)) for _ in range(100)]
        await settled()
        asking.append(asyncio.create_task(held.ask(owner)))
        await settled()
        await held.end(program)
        await held.end(program)
        assert held.served[2:] == [program, owner]
        assert held.under_way == Counter({program: 1, owner: 1})


async def test_strangers_of_all_networks_are_one_group(asking: list[asyncio.Task[None]]) -> None:
    held = Held(2)
    asking += [asyncio.create_task(held.ask(stranger(f"192.0.2.{number}"))) for number in range(60) for _ in range(3)]
    await settled()
    asking.append(asyncio.create_task(held.ask(ACME)))
    await settled()
    await held.end(held.served[0])
    await held.end(held.served[1])
    assert ACME in held.served[:3]


async def test_of_one_connection_everybody_has_it_in_turn(asking: list[asyncio.Task[None]]) -> None:
    held = Held(1)
    for key in (MALLORY, MALLORY, MALLORY, ACME, OPERATORS):
        asking.append(asyncio.create_task(held.ask(key)))
        await settled()
    for _ in range(4):
        await held.end(held.served[-1])
    assert held.served == [MALLORY, MALLORY, ACME, OPERATORS, MALLORY]


@examples(nightly=300, gate=60)
@given(st.lists(st.tuples(st.sampled_from([ACME, MALLORY, OPERATORS]), st.integers(0, 3)), max_size=30))
async def test_a_cancelled_request_keeps_no_connection(steps: list[tuple[QueueKey, int]]) -> None:
    held = Held(4)
    tasks: list[asyncio.Task[None]] = []
    for key, kind in steps:
        if kind < 2 or not tasks:
            tasks.append(asyncio.create_task(held.ask(key)))
        else:
            tasks.pop(len(tasks) // 2 if kind == 2 else 0).cancel()
        if kind != 1:
            await settled()
        assert max(held.under_way.values(), default=0) <= 2
        assert held.under_way.total() <= 4
        assert held.under_way[ACME] + held.under_way[MALLORY] <= 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with AsyncExitStack() as stack:  # all places are free again
        for key in (ACME, ACME, MALLORY, OPERATORS):
            await asyncio.wait_for(stack.enter_async_context(held.queue.connection(key)), 1)


def test_known_places_are_bounded_and_the_used_ones_stay() -> None:
    callers, someone = CallerKeys(), principal()
    for number in range(MAX_CALLERS + 50):
        callers.learn(b"%d" % number, someone)
        assert callers.find(b"0", "192.0.2.1") == key_of(someone)
    assert callers.find(b"7", "192.0.2.1") == stranger("192.0.2.1")


async def test_two_hundred_lists_of_one_tenant_delay_no_other(people: People, admin_postgres_url: str) -> None:
    """Fault: one queue for all connections, first come first served."""
    mallory, acme = await people.as_(Role.OWNER), await people.as_(Role.OWNER, "theirs")
    operator, ours = await people.operator(), people.organizations["ours"]

    async def both_wait() -> bool:
        return await waiting_for_locks(people.database) == 2

    patient = AdminConfig(connections=4, timeout_s=GUARD_S)
    async with gateway(admin_postgres_url, people, patient) as asked:
        await asyncio.gather(*(asked.ask("get_me", each) for each in (mallory, acme, operator)))
        async with locked(admin_postgres_url, "projects"):
            lists = [asyncio.create_task(asked.ask("list_projects", mallory, organization_id=ours)) for _ in range(200)]
            await settled()
            for _ in range(3):
                assert (await asked.ask("get_me", acme)).status == 200
                assert (await asked.ask("list_organizations", operator)).status == 200
            await eventually(both_wait)
            asked.api._config = msgspec.structs.replace(patient, timeout_s=0.5)
            with pytest.raises(RateLimited, match="2 requests to the admin API under way") as refused:
                await asked.ask("list_projects", mallory, organization_id=ours)
            assert refused.value.retry_after_s
            assert not any(each.done() for each in lists), "all of them wait still"
            for each in lists:
                each.cancel()
            await asyncio.gather(*lists, return_exceptions=True)


async def test_a_key_that_is_not_known_yet_waits_behind_no_tenant(people: People, admin_postgres_url: str) -> None:
    mallory, newcomer = await people.as_(Role.OWNER), await people.as_(Role.VIEWER, "theirs")
    ours = people.organizations["ours"]
    async with gateway(admin_postgres_url, people, AdminConfig(connections=4)) as asked:
        await asked.ask("get_me", mallory)
        async with locked(admin_postgres_url, "projects"):
            lists = [asyncio.create_task(asked.ask("list_projects", mallory, organization_id=ours)) for _ in range(50)]
            await settled()
            found = await asked.api.admit(BY_NAME["get_me"], newcomer.secret, "192.0.2.7")
            assert found.organization_id == people.organizations["theirs"]
            for each in lists:
                each.cancel()
            await asyncio.gather(*lists, return_exceptions=True)
