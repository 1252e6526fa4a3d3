"""Whose prompt is next: against a plain list of all jobs, and what fairness and shares mean, on random histories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import RateLimited
from engines.tokenizer.fair_queue import FairQueue

JOBS, BYTES = 4, 100


class PlainQueue:
    """Every job in one list; all else is looked up in it anew. A tenant's turn comes in the order in which the tenants
    came to have a job waiting and none taken."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, int, int, bool]] = []
        """Tenant, number, bytes, taken."""
        self.turns: list[str] = []

    def put(self, tenant: str, number: int, size: int) -> bool:
        own = [job for job in self.jobs if job[0] == tenant]
        if len(own) >= JOBS or (own and sum(job[2] for job in own) + size > BYTES):
            return False
        self.jobs.append((tenant, number, size, False))
        self._line_up()
        return True

    def take(self) -> int | None:
        if not self.turns:
            return None
        index = next(i for i, job in enumerate(self.jobs) if job[0] == self.turns[0])
        tenant, number, size, _ = self.jobs[index]
        self.jobs[index] = (tenant, number, size, True)
        self._line_up()
        return number

    def finish(self, tenant: str) -> None:
        self.jobs.remove(next(job for job in self.jobs if job[0] == tenant and job[3]))
        self._line_up()

    def drop(self, number: int) -> None:
        self.jobs = [job for job in self.jobs if job[1] != number or job[3]]
        self._line_up()

    def _line_up(self) -> None:
        taken = {job[0] for job in self.jobs if job[3]}
        ready = {job[0] for job in self.jobs} - taken
        self.turns = [tenant for tenant in self.turns if tenant in ready]
        self.turns += sorted(ready - set(self.turns))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.integers(0, 130)),
        st.tuples(st.just("take"), st.just(""), st.just(0)),
        st.tuples(st.just("finish"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("drop"), st.just(""), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(history=steps)
def test_it_decides_as_one_list_of_all_jobs_does(history: list[tuple[str, str, int]]) -> None:
    clever, plain = FairQueue[int](JOBS, BYTES), PlainQueue()
    tenants: list[str] = []
    running: set[str] = set()
    for step, tenant, number in history:
        if step == "put":
            job = len(tenants)
            tenants.append(tenant)
            if plain.put(tenant, job, number):
                clever.put(tenant, job, number)
            else:
                with pytest.raises(RateLimited):
                    clever.put(tenant, job, number)
        elif step == "take":
            taken = clever.take()
            assert taken == plain.take()
            if taken is not None:
                assert tenants[taken] not in running
                running.add(tenants[taken])
        elif step == "finish" and tenant in running:
            running.remove(tenant)
            clever.finish(tenant)
            plain.finish(tenant)
        elif step == "drop" and number < len(tenants):
            clever.drop(tenants[number], number)
            plain.drop(number)
    left = sum(not job[3] for job in plain.jobs)
    assert len(clever.clear()) == left
    for tenant in running:
        clever.finish(tenant)
    assert clever._tenants == {}, "nothing of a tenant that has nothing here is kept"


@given(flood=st.integers(1, 50), others=st.integers(1, 5))
def test_nobody_waits_for_more_than_one_job_of_another(flood: int, others: int) -> None:
    queue = FairQueue[str](1_000, 1_000_000)
    for number in range(flood):
        queue.put("flooder", f"flooder {number}", 1_000)
    assert queue.take() == "flooder 0"
    for number in range(others):
        queue.put(f"other {number}", f"other {number}", 1)
    queue.finish("flooder")
    assert [queue.take() for _ in range(others)] == [f"other {number}" for number in range(others)]


def test_a_tenant_over_its_share_is_told_what_it_has_and_when_to_come_back() -> None:
    queue = FairQueue[int](3, 100)
    queue.put("a", 1, 60)
    with pytest.raises(RateLimited) as refused:
        queue.put("a", 2, 50)
    assert refused.value.retry_after_s
    assert "1 prompts of your organization, 60 bytes" in refused.value.message
    assert "at most 3 prompts and 100 bytes" in refused.value.message
    queue.put("b", 3, 100_000)  # a single one is always taken, and another's share is another's
    assert queue.take() == 1
    with pytest.raises(RateLimited):
        queue.put("a", 2, 50)
    queue.finish("a")
    queue.put("a", 2, 50)
