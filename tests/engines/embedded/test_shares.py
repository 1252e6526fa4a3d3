"""Organizations share memory and slots: one organization's reservations delay no other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Overloaded
from engines.embedded.config import SchedulerConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.pages import PagePool
from engines.embedded.kv.radix import RadixCache
from engines.embedded.scheduler import Scheduler
from engines.embedded.sequence import Sequence
from engines.tokenizer.text_stream import BytesTextStream
from tests.engines.embedded.naive_shares import Job, NaiveShares
from tests.engines.embedded.tiny import drain, make_engine, request, text
from tests.examples import examples

PAGE_TOKENS, PAGES, PLACES, AGEING_S = 4, 24, 6, 10.0
STEP_S = 0.01


class Bare:
    """A scheduler without a model: scheduled tokens count as computed, and every answer has its full length."""

    def __init__(self, output_reserve: float) -> None:
        self.now = 0.0
        self.pages = PagePool(PAGES)
        self.config = SchedulerConfig(
            max_batch_tokens=10_000, max_running=PLACES, output_reserve=output_reserve, ageing_s=AGEING_S
        )
        cache = RadixCache(self.pages, PAGE_TOKENS)
        self.scheduler = Scheduler(self.config, self.pages, cache, PAGE_TOKENS, lambda: self.now)
        self.number = 0

    def add(self, organization: str, prompt: int, output: int, priority: int = 0) -> Sequence:
        self.number += 1
        # no prompt begins as another does: nothing is found in the cache but one's own
        ids = [self.number, *range(prompt - 1)]
        asked = request(str(self.number), ids, max_tokens=output, priority=priority, cache_salt=organization)
        sequence = Sequence(asked, 0, BytesTextStream({}), 8, self.now)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> None:
        self.now += STEP_S
        for work in self.scheduler.schedule().works:
            self.scheduler.computed(work)
            if not work.sequence.pending:
                work.sequence.append(1)
                if work.sequence.finish is not None:
                    self.scheduler.remove(work.sequence)

    def expected(self) -> tuple[list[str], list[str]]:
        """Names of those that start in the next step, and of those that leave for one that starts, or for memory."""
        scheduler = self.scheduler
        jobs = {sequence: self._job(sequence) for sequence in [*scheduler.running, *scheduler.waiting]}
        plain = NaiveShares(
            [jobs[one] for one in scheduler.running], [jobs[one] for one in scheduler.waiting], PAGES, PLACES, AGEING_S
        )
        for sequence in list(scheduler.running):
            job = jobs[sequence]
            wanted = -(-len(sequence.tokens) // PAGE_TOKENS)
            while job in plain.running and sum(one.pages for one in plain.running) - job.pages + wanted > PAGES:
                plain.leave(plain.last(plain.running))
            if job in plain.running:
                job.pages = wanted
        if not plain.left:
            plain.start_all()
        return [job.name for job in plain.started], [job.name for job in plain.left]

    def _job(self, sequence: Sequence) -> Job:
        asked, tokens = sequence.request, len(sequence.tokens)
        output = max(1, int((sequence.most_tokens - tokens) * self.config.output_reserve))
        again = -(-(tokens + output) // PAGE_TOKENS)
        most = sequence.most_pages if sequence.running else again
        place = sequence.due_s, sequence.order
        return Job(asked.rid, asked.organization, asked.priority, *place, most, again, len(sequence.pages))

    def happened(self) -> tuple[list[str], list[str]]:
        """Take one step; returns the sequences that started and left, in order."""
        before = list(self.scheduler.running)
        preemptions = {one: one.preemptions for one in [*before, *self.scheduler.waiting]}
        left: list[str] = []
        preempt = self.scheduler._preempt

        def noted(sequence: Sequence) -> None:
            left.append(sequence.request.rid)
            preempt(sequence)

        started: list[str] = []
        start = self.scheduler._start

        def begun(sequence: Sequence, most_pages: int) -> None:
            started.append(sequence.request.rid)
            start(sequence, most_pages)

        self.scheduler._preempt, self.scheduler._start = noted, begun  # type: ignore[method-assign]
        self.step()
        self.scheduler._preempt, self.scheduler._start = preempt, start  # type: ignore[method-assign]
        assert sum(one.preemptions for one in preemptions) - sum(preemptions.values()) == len(left)
        return started, left


ARRIVALS = st.tuples(
    st.sampled_from("abc"), st.integers(1, 30), st.integers(1, 60), st.sampled_from((0, 0, 0, 10, -10))
)


@pytest.mark.hypothesis
@examples(nightly=2_000, gate=60)
@given(
    st.lists(st.tuples(st.lists(ARRIVALS, max_size=5), st.integers(1, 30)), max_size=8),
    st.sampled_from((1.0, 0.4, 0.0)),
)
def test_sequences_start_and_leave_by_the_plain_rule(
    rounds: list[tuple[list[tuple[str, int, int, int]], int]], output_reserve: float
) -> None:
    bare = Bare(output_reserve)
    for arrivals, steps in rounds:
        for organization, prompt, output, priority in arrivals:
            bare.add(organization, prompt, min(output, PAGES * PAGE_TOKENS - prompt), priority)
            bare.now += 1.0
        for _ in range(steps):
            expected = bare.expected()
            assert bare.happened() == expected
    guard = 0
    while bare.scheduler.running or bare.scheduler.waiting:
        bare.step()
        guard += 1
        assert guard < 50_000, "somebody waits for ever"
    assert bare.pages.pinned == 0


def flood(model: Path, output_reserve: float, steps: int = 0) -> Engine:
    """40 answers of one organization that are as long as the context, begun so many steps ago; 2.5 fit at a time."""
    engine = make_engine(model, pages=320, page_tokens=4, output_reserve=output_reserve)
    for number in range(40):
        asked = request(f"m{number}", [number, 7, 8], max_tokens=509, logit_bias=((3, -100.0),), cache_salt="mallory")
        engine.submit(asked)
    for _ in range(steps):
        engine.step()
    return engine


def steps_of_a_ping(engine: Engine, rid: str, organization: str, max_tokens: int = 2) -> int:
    engine.submit(request(rid, [9, 10, 11], cache_salt=organization, max_tokens=max_tokens))
    for count in range(1, 100):
        if any(delta.rid == rid and delta.finish is not None for delta in engine.step()):
            return count
    pytest.fail("the ping waits for the others")


@pytest.mark.parametrize("output_reserve", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("begun", [0, 1, 300])
def test_whole_contexts_of_one_leave_another_a_place_at_once(
    tiny_model: Path, output_reserve: float, begun: int
) -> None:
    engine = flood(tiny_model, output_reserve, begun)
    for number in range(5):
        assert steps_of_a_ping(engine, f"ping {number}", "acme") == 2, "one for each of its tokens"
    assert steps_of_a_ping(engine, "as long as it may be", "acme", max_tokens=30) == 30
    engine.abort("m", prefix=True)
    assert engine.pages.pinned == 0


def test_choices_of_one_leave_another_a_place_at_once(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, pages=1024, max_running=4)
    engine.submit(request("many", [5, 6, 7], choices=40, max_tokens=60, cache_salt="mallory"))
    for _ in range(5):
        engine.step()
    assert steps_of_a_ping(engine, "ping", "acme") == 2
    assert len(engine.scheduler.running) <= 4


def test_each_of_two_organizations_that_want_everything_holds_half(tiny_model: Path) -> None:
    engine = flood(tiny_model, 1.0, 5)
    for number in range(40):
        engine.submit(request(f"a{number}", [number, 5, 6], max_tokens=509, cache_salt="acme"))
    engine.step()
    held = [sequence.request.cache_salt for sequence in engine.scheduler.running]
    assert sorted(held) == ["acme", "mallory"]


def test_a_sequence_preempted_for_another_goes_on_with_the_same_text(tiny_model: Path) -> None:
    alone = text(drain(loaded := long_answer(tiny_model))["second", 0])
    assert loaded.scheduler.yielded == 0
    engine = long_answer(tiny_model)
    for _ in range(40):
        engine.step()
    pings = 0
    parts: list[str] = []
    while engine.busy:
        if pings < 10:
            pings += 1
            engine.submit(request(f"ping {pings}", [9, 10, pings], max_tokens=3, cache_salt="acme"))
        parts += [delta.text for delta in engine.step() if delta.rid == "second"]
    assert engine.scheduler.yielded > 0
    assert engine.scheduler.preemptions == 0, "memory has not run out"
    assert alone.endswith("".join(parts))


def long_answer(model: Path) -> Engine:
    """Two that fit beside each other exactly."""
    engine = make_engine(model, pages=256, output_reserve=1.0)
    for rid in ("first", "second"):
        engine.submit(request(rid, [5, 6, 7, len(rid)], max_tokens=508, stop_ids=frozenset(), cache_salt="mallory"))
    return engine


def test_a_small_one_passes_a_large_one_of_its_own_for_a_while(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, pages=160, output_reserve=1.0, ageing_s=10.0)
    now = [0.0]
    engine._clock = engine.scheduler._clock = lambda: now[0]
    engine.submit(request("first", [5, 6, 7], max_tokens=400))
    engine.step()
    engine.submit(request("large", [5, 6, 8], max_tokens=500))
    now[0] = 9.0
    assert steps_of_a_ping(engine, "within the while", "") == 2
    now[0] = 11.0
    engine.submit(request("later", [5, 6, 9], max_tokens=2))
    seen = {delta.rid for _ in range(30) for delta in engine.step()}
    assert seen == {"first"}, "memory is gathered for the large one"
    ends = [delta.rid for deltas in drain(engine).values() for delta in deltas if delta.finish]
    assert sorted(ends) == ["first", "large", "later"]


def test_a_request_that_waits_too_long_is_refused_and_the_rest_goes_on(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_running=1)
    now = [0.0]
    engine._clock = engine.scheduler._clock = lambda: now[0]
    engine.submit(request("runs", [5, 6, 7], max_tokens=60))
    engine.step()
    for rid, within_s in (("patient", None), ("hurried", 2.0)):
        asked = request(rid, [5, 6, 8], max_tokens=2, choices=3)
        engine.submit(msgspec.structs.replace(asked, start_within_s=within_s))
    now[0] = 1.9
    assert {delta.rid for delta in engine.step()} == {"runs"}
    now[0] = 2.1
    refused = [delta for delta in engine.step() if delta.rid == "hurried"]
    assert [(delta.prompt_tokens, delta.completion_tokens) for delta in refused] == [(0, 0)] * 3, "nothing is billed"
    for delta in refused:
        assert delta.finish is not None
        assert isinstance(delta.finish.error, Overloaded)
        assert delta.finish.error.message == "No slot or memory came free on this engine within 2 s; try again."
    assert {rid for rid, _ in drain(engine)} == {"runs", "patient"}


def test_a_preempted_stream_sends_heartbeats(tiny_model: Path) -> None:
    engine = long_answer(tiny_model)
    now = [0.0]
    engine._clock = engine.scheduler._clock = lambda: now[0]
    for _ in range(3):
        engine.step()
    engine.submit(request("other", [5, 6, 9], max_tokens=500, cache_salt="acme"))
    engine.step()
    assert [sequence.request.rid for sequence in engine.scheduler.waiting] == ["second"]
    silent = engine.step()
    now[0] = 16.0
    signs = [delta for delta in engine.step() if delta.rid == "second"]
    assert "second" not in {delta.rid for delta in silent}
    assert [(delta.text, delta.completion_tokens, delta.finish) for delta in signs] == [("", 3, None)]
    assert "second" not in {delta.rid for delta in engine.step()}
