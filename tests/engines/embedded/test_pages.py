"""Pages, slots and sequences are all given back, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from contracts.errors import ConfigError
from engines.embedded.config import KVConfig
from engines.embedded.kv.pages import PagePool
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import load_model
from tests.engines.embedded.tiny import make_engine, request


def test_a_page_is_free_when_its_last_owner_gives_it_back() -> None:
    pool = PagePool(4)
    pages = pool.take(3)
    assert pages is not None
    pool.share(pages[:1])
    pool.give_back(pages)
    assert pool.free == 3
    pool.give_back(pages[:1])
    assert pool.free == 4


def test_more_pages_than_there_are_takes_none() -> None:
    pool = PagePool(2)
    assert pool.take(3) is None
    assert pool.free == 2


def test_giving_back_twice_and_sharing_free_pages_are_errors() -> None:
    pool = PagePool(2)
    with pytest.raises(ValueError, match="twice"):
        pool.give_back([0])
    with pytest.raises(ValueError, match="free"):
        pool.share([1])


def test_a_budget_too_small_for_one_request_stops_the_start(tiny_model: Path) -> None:
    model = load_model(tiny_model, "float32")
    with pytest.raises(ConfigError, match=r"kv\.budget_bytes.*Give at least"):
        KVStore(model.config, KVConfig(budget_bytes=1000), model.dtype, 512)


def test_the_budget_follows_the_formula(tiny_model: Path) -> None:
    model = load_model(tiny_model, "float32")
    store = KVStore(model.config, KVConfig(budget_bytes=1 << 20, page_tokens=4), model.dtype, 64)
    assert store.token_bytes == 2 * 2 * 2 * 8 * 4
    assert store.pages.nbytes == store.total_pages * 4 * store.token_bytes <= 1 << 20


def test_random_requests_and_cancels_leave_nothing_behind(tiny_model: Path) -> None:
    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.engine = make_engine(tiny_model, pages=24, max_running=5, max_batch_tokens=9, output_reserve=0.3)
            self.open: dict[tuple[str, int], int] = {}
            self.number = 0

        @rule(size=st.integers(1, 30), output=st.integers(1, 40), choices=st.integers(1, 3), priority=st.integers(0, 1))
        def submit(self, size: int, output: int, choices: int, priority: int) -> None:
            self.number += 1
            rid = f"r{self.number}."
            self.engine.submit(request(rid, range(5, 5 + size), max_tokens=output, choices=choices, priority=priority))
            for index in range(choices):
                self.open[rid, index] = 0

        @rule(count=st.integers(1, 12))
        def step(self, count: int) -> None:
            for _ in range(count):
                for delta in self.engine.step():
                    assert delta.completion_tokens > self.open[delta.rid, delta.index]
                    self.open[delta.rid, delta.index] = delta.completion_tokens
                    if delta.finish:
                        del self.open[delta.rid, delta.index]

        @rule(number=st.integers(1, 40))
        def abort(self, number: int) -> None:
            for delta in self.engine.abort(f"r{number}."):
                assert delta.finish is not None
                del self.open[delta.rid, delta.index]

        @invariant()
        def pages_belong_to_running_sequences_once(self) -> None:
            scheduler, pool = self.engine.scheduler, self.engine.pages
            owned = [page for sequence in scheduler.running for page in sequence.pages]
            assert len(owned) == len(set(owned)) == pool.total - pool.free
            assert len(scheduler.running) <= 5
            assert len(self.open) == len(scheduler.running) + len(scheduler.waiting)

        def teardown(self) -> None:
            guard = 0
            while self.engine.busy:
                self.step(1)
                guard += 1
                assert guard < 20_000, "the engine makes no progress"
            assert not self.open
            assert self.engine.pages.free == self.engine.pages.total

    run_state_machine_as_test(Machine, settings=settings(max_examples=15, stateful_step_count=30, deadline=None))
