"""What else is in the batch must not change a sequence's text."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from contracts.generation import BACKGROUND_PRIORITY
from engines.embedded.engine import Engine
from engines.embedded.live import LiveRequest
from engines.embedded.output import Delta, Timing
from engines.embedded.request import Request
from tests.engines.embedded.tiny import drain, finish, make_engine, request, text


def prompts(count: int, seed: int = 1) -> list[list[int]]:
    source = random.Random(seed)
    return [[source.randrange(5, 2048) for _ in range(source.randrange(1, 60))] for _ in range(count)]


def ids(deltas: list[Delta]) -> list[int]:
    return [entry.id for delta in deltas for entry in delta.logprobs]


def alone(folder: Path, one: Request) -> list[int]:
    (deltas,) = finish(make_engine(folder), one).values()
    return ids(deltas)


def greedy(count: int) -> list[Request]:
    return [request(f"r{at}", prompt, logprobs=0, max_tokens=5 + at) for at, prompt in enumerate(prompts(count))]


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> dict[str, list[int]]:
    """What each of `greedy(12)` is answered when it is the only one."""
    return {one.rid: alone(tiny_model, one) for one in greedy(12)}


@pytest.mark.parametrize("budget", [512, 16, 7])
def test_batched_equals_alone_whole_and_in_chunks(
    tiny_model: Path, expected: dict[str, list[int]], budget: int
) -> None:
    together = finish(make_engine(tiny_model, max_batch_tokens=budget), *greedy(12))
    assert {rid: ids(deltas) for (rid, _), deltas in together.items()} == expected


def test_joining_and_leaving_at_any_step_changes_nothing(tiny_model: Path, expected: dict[str, list[int]]) -> None:
    engine = make_engine(tiny_model, max_batch_tokens=24)
    source = random.Random(3)
    waiting = greedy(10)
    results: dict[str, list[Delta]] = {}
    aborted = set()
    while waiting or engine.busy:
        if waiting and source.random() < 0.4:
            engine.submit(waiting.pop())
        if source.random() < 0.1 and results:
            rid = source.choice(sorted(results))
            if engine.abort(rid):
                aborted.add(rid)
        for delta in engine.step():
            results.setdefault(delta.rid, []).append(delta)
    for one in greedy(10):
        got, whole = ids(results.get(one.rid, [])), expected[one.rid]
        assert got == (whole[: len(got)] if one.rid in aborted else whole)


def test_a_prompt_that_nobody_waits_for_gets_what_newcomers_leave(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_batch_tokens=16, ageing_s=0.001)
    engine.submit(request("background", range(5, 205), max_tokens=1, priority=BACKGROUND_PRIORITY))
    engine.step()
    engine.submit(request("newcomer", prompts(1, seed=9)[0][:16] or [5], max_tokens=1))
    first = [delta.rid for delta in engine.step()]
    assert first == ["newcomer"], "its prompt is one step's budget"
    assert {rid for rid, _ in drain(engine)} == {"background"}


def test_what_comes_later_does_not_change_a_prompt_in_the_background(
    tiny_model: Path, expected: dict[str, list[int]]
) -> None:
    engine = make_engine(tiny_model, max_batch_tokens=24)
    first = request("background", [7, *range(5, 150)], logprobs=0, max_tokens=8, priority=BACKGROUND_PRIORITY)
    engine.submit(first)
    deltas: dict[str, list[Delta]] = {}
    for one in [None, *greedy(6)]:
        if one is not None:
            engine.submit(one)
        for delta in engine.step():
            deltas.setdefault(delta.rid, []).append(delta)
    for (rid, _), rest in drain(engine).items():
        deltas.setdefault(rid, []).extend(rest)
    assert ids(deltas.pop("background")) == alone(tiny_model, first)
    assert {rid: ids(told) for rid, told in deltas.items()} == {one.rid: expected[one.rid] for one in greedy(6)}


def test_preempted_sequences_are_recomputed_to_the_same_text(tiny_model: Path) -> None:
    # 40 pages of 4 tokens: far fewer than the sequences grow to, and nothing is reserved for output
    engine = make_engine(tiny_model, pages=40, output_reserve=0.0, max_batch_tokens=64)
    wanted = [request(f"r{at}", prompt[:20], logprobs=0, max_tokens=60) for at, prompt in enumerate(prompts(6))]
    together = finish(engine, *wanted)
    assert engine.scheduler.preemptions > 0
    for one in wanted:
        assert ids(together[one.rid, 0]) == alone(tiny_model, one)
    told = [together[one.rid, 0][-1].timing for one in wanted]
    assert sum(timing.retractions for timing in told if timing) == engine.scheduler.preemptions
    assert engine.pages.pinned == 0


def test_each_request_is_told_where_its_time_went(tiny_model: Path) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    engine = make_engine(tiny_model, max_running=1, max_batch_tokens=8)
    engine._clock = engine.scheduler._clock = clock
    first, second = request("first", range(5, 25), max_tokens=4), request("second", range(5, 9), max_tokens=4)
    first = msgspec.structs.replace(first, grammar_s=0.04)
    news = finish(engine, first, second)
    told = {}
    for one in (first, second):
        live = LiveRequest(one)
        for delta in news[one.rid, 0]:
            live.put(delta)
        extension = live.usage().extension()
        assert extension is not None
        told[one.rid] = extension["request_timing"]
    ended: dict[str, Timing] = {}
    for (rid, _), (*_, last) in news.items():
        assert last.timing is not None
        ended[rid] = last.timing
        assert told[rid] == {
            "queue_ms": last.timing.queue_s * 1e3, "prefill_ms": last.timing.prefill_s * 1e3, "retractions": 0,
            "grammar_ms": {"first": 40.0, "second": 0.0}[rid],
        }  # fmt: skip
    assert ended["second"].queue_s > ended["first"].queue_s + ended["first"].prefill_s, "it waited for the whole first"
    assert ended["first"].prefill_s > ended["second"].prefill_s, "three pieces take longer than one"


def test_a_full_reserve_never_preempts(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, pages=40, output_reserve=1.0)
    finish(engine, *[request(f"r{at}", prompt[:20], max_tokens=60) for at, prompt in enumerate(prompts(6))])
    assert engine.scheduler.preemptions == 0


def sampled(rid: str, seed: int | None, choices: int = 1) -> Request:
    return request(rid, [5, 6, 7], temperature=1.0, top_p=0.95, seed=seed, max_tokens=24, choices=choices)


def texts(engine: Engine, *requests: Request) -> dict[tuple[str, int], str]:
    return {key: text(deltas) for key, deltas in finish(engine, *requests).items()}


def test_same_seed_same_text_whatever_else_runs(tiny_model: Path) -> None:
    single = texts(make_engine(tiny_model), sampled("r", 7))["r", 0]
    busy = texts(make_engine(tiny_model), *greedy(5), sampled("r", 7), sampled("other", 8))
    assert busy["r", 0] == single
    assert busy["other", 0] != single


def test_choices_of_one_seed_differ_from_each_other_and_repeat(tiny_model: Path) -> None:
    first = texts(make_engine(tiny_model), sampled("r", 7, choices=3))
    assert len(set(first.values())) == 3
    assert texts(make_engine(tiny_model), sampled("r", 7, choices=3)) == first


def test_unseeded_requests_differ(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    assert len(set(texts(engine, *[sampled(f"r{at}", None) for at in range(4)]).values())) == 4


def test_higher_priority_starts_first_and_equal_ones_in_order(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_running=1)
    for rid, priority in (("a", 0), ("b", 0), ("c", 5)):
        engine.submit(request(rid, [5, 6], priority=priority, max_tokens=2))
    ends = [delta.rid for deltas in drain(engine).values() for delta in deltas if delta.finish]
    assert ends == ["c", "a", "b"]


def test_decodes_go_on_while_a_long_prompt_is_chunked(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_batch_tokens=8)
    engine.submit(request("short", [5, 6], max_tokens=100, logprobs=0))
    engine.step()
    engine.submit(request("long", range(5, 105), max_tokens=1))
    short = engine.scheduler.running[0]
    steps = 0
    while "long" not in {delta.rid for delta in engine.step()}:
        steps += 1
        assert short.completion_tokens == steps + 1  # a token in every step
    assert steps == 100 // 7  # one token of each step's eight goes to the running stream


def test_a_short_prompt_does_not_wait_for_a_long_one(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_batch_tokens=16)
    engine.submit(request("long", prompt := [5 + at % 900 for at in range(200)], max_tokens=1))
    engine.step()
    (long,) = engine.scheduler.running
    assert long.computed == 16, "alone it has the whole budget"
    engine.submit(request("other long", reversed(prompt), max_tokens=1))
    engine.step()
    engine.submit(request("short", [7, 8, 9], max_tokens=1))
    before = long.computed
    assert [delta.rid for delta in engine.step()] == ["short"]
    assert long.computed == before + 12, "three quarters"
    engine.abort("other long")
    before = long.computed
    engine.step()
    assert long.computed == before + 16


def test_what_those_behind_leave_is_the_oldest_prompts(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_batch_tokens=16)
    engine.submit(request("long", [5 + at % 900 for at in range(200)], max_tokens=1))
    engine.step()
    (long,) = engine.scheduler.running
    engine.submit(request("short", [7, 8], max_tokens=1))
    assert [delta.rid for delta in engine.step()] == ["short"]
    assert long.computed == 16 + 14


def test_those_that_generate_leave_the_oldest_prompt_all_they_do_not_take(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_batch_tokens=16, max_running=14, pages=1024)
    for number in range(13):
        engine.submit(request(f"generating {number}", [5 + number, 6, 7], max_tokens=100))
    for _ in range(6):
        engine.step()
    assert all(sequence.pending == 1 for sequence in engine.scheduler.running)
    engine.submit(request("long", [5 + at % 900 for at in range(100)], max_tokens=1))
    engine.step()
    long = engine.scheduler.running[-1]
    engine.submit(request("no place", [9, 9, 9], max_tokens=1))
    while long.running:
        before = long.computed
        engine.step()
        assert long.computed == min(before + 3, 100), "more than three quarters of the step are taken"
