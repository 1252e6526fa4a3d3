"""Pages, references, slots and sequences are all given back, whatever happens."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from engines.embedded.engine import Engine
from speculative.config import SpeculationConfig
from tests.engines.embedded.naive_cache import cached_pages, check_tree
from tests.engines.embedded.tiny import make_engine, request
from tests.examples import examples


def check_running(engine: Engine) -> None:
    """The pool's counts are those of the sequences' pages, and the tree agrees with both."""
    owners: dict[int, int] = {}
    for sequence in engine.scheduler.running:
        for page in sequence.pages:
            owners[page] = owners.get(page, 0) + 1
    assert engine.pages.pinned == len(owners)
    assert all(engine.pages.owners(page) == count for page, count in owners.items())
    check_tree(engine.cache)


def check_idle(engine: Engine) -> None:
    """Nothing is left but what the cache keeps, and all of that can be had back."""
    assert not engine.busy
    assert not engine.scheduler.running
    assert len(engine.scheduler.waiting) == 0
    assert engine.pages.pinned == 0
    assert cached_pages(engine.cache) == engine.pages.idle
    check_tree(engine.cache)
    engine.cache.clear()
    assert engine.pages.free == engine.pages.total


@pytest.mark.hypothesis
def test_any_order_of_submits_steps_and_aborts_leaves_nothing_behind(tiny_model: Path) -> None:
    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.engine = make_engine(tiny_model, pages=24, max_running=5, max_batch_tokens=9, output_reserve=0.3)
            self.open: dict[tuple[str, int], int] = {}
            self.number = 0

        @rule(
            first=st.integers(5, 6),
            size=st.integers(1, 30),
            output=st.integers(1, 40),
            choices=st.integers(1, 3),
            priority=st.integers(0, 1),
        )
        def submit(self, first: int, size: int, output: int, choices: int, priority: int) -> None:
            self.number += 1
            rid = f"r{self.number}."
            prompt = [first, *range(5, 4 + size)]
            self.engine.submit(request(rid, prompt, max_tokens=output, choices=choices, priority=priority))
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
        def everything_is_accounted_for(self) -> None:
            scheduler = self.engine.scheduler
            check_running(self.engine)
            assert len(scheduler.running) <= 5
            assert len(self.open) == len(scheduler.running) + len(scheduler.waiting)

        def teardown(self) -> None:
            guard = 0
            while self.engine.busy:
                self.step(1)
                guard += 1
                assert guard < 20_000, "the engine makes no progress"
            assert not self.open
            check_idle(self.engine)

    run_state_machine_as_test(Machine, settings=examples(nightly=200, gate=8, stateful_step_count=30))


def serve_at_random(folder: Path, requests: int, seed: int, speculation: SpeculationConfig | None = None) -> Engine:
    """Prompts that share prefixes, several choices, salts, priorities, too few pages, and a quarter cancelled."""
    source = random.Random(seed)
    engine = make_engine(
        folder, pages=64, max_running=12, max_batch_tokens=64, output_reserve=0.2, speculation=speculation
    )
    stems = [[source.randrange(5, 2048) for _ in range(40)] for _ in range(4)]
    ends: dict[tuple[str, int], int] = {}
    submitted = expected = 0
    while submitted < requests or engine.busy:
        if submitted < requests and len(engine.scheduler.waiting) < 20 and source.random() < 0.6:
            prompt = [*source.choice(stems)[: source.randrange(1, 40)], source.randrange(5, 2048)]
            choices = source.choice((1, 1, 1, 2, 4))
            one = request(
                f"r{submitted}",
                prompt,
                max_tokens=source.randrange(1, 30),
                choices=choices,
                priority=source.randrange(2),
                cache_salt=source.choice(("", "a")),
                temperature=source.choice((0.0, 1.0)),
            )
            engine.submit(one)
            submitted += 1
            expected += choices
        deltas = engine.step()
        if submitted and source.random() < 0.25:
            deltas += engine.abort(f"r{source.randrange(max(0, submitted - 20), submitted)}")
        for delta in deltas:
            if delta.finish is not None:
                ends[delta.rid, delta.index] = ends.get((delta.rid, delta.index), 0) + 1
        if source.random() < 0.02:
            check_running(engine)
    assert len(ends) == expected
    assert set(ends.values()) == {1}, "every choice ends once"
    assert engine.scheduler.preemptions > 0
    assert engine.stats.cached_tokens > 0
    assert engine.stats.aborted_requests > 0
    return engine


def test_random_requests_with_random_cancels_leave_nothing_behind(tiny_model: Path) -> None:
    check_idle(serve_at_random(tiny_model, 120, seed=1))


def test_random_requests_with_drafts_leave_nothing_behind(tiny_model: Path) -> None:
    drafting = SpeculationConfig(method="ngram", governed=False, ngram_least=1)
    engine = serve_at_random(tiny_model, 120, seed=3, speculation=drafting)
    assert 0 < engine.stats.accepted_drafts < engine.stats.drafts
    check_idle(engine)


@pytest.mark.nightly
def test_ten_thousand_random_requests_leave_nothing_behind(tiny_model: Path) -> None:
    check_idle(serve_at_random(tiny_model, 10_000, seed=2))
