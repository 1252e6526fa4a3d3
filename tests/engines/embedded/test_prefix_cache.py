"""What a client sees of the prefix cache: the same text, counted hits, walls between salts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.embedded.engine import Engine
from engines.embedded.output import Delta
from tests.engines.embedded.tiny import SHIPPED, drain, finish, make_engine, request

PROMPT = list(range(5, 50))


def ids(deltas: list[Delta]) -> list[int]:
    return [entry.id for delta in deltas for entry in delta.logprobs]


def serve(engine: Engine, rid: str, prompt: list[int], **settings: Any) -> Delta:
    """Serve one request alone; its last delta."""
    return next(iter(finish(engine, request(rid, prompt, logprobs=0, **settings)).values()))[-1]


def test_a_hit_gives_the_same_text_as_a_cold_start(tiny_model: Path) -> None:
    for length in (5, 8, 9, 21, 45):
        cold, warm = make_engine(tiny_model), make_engine(tiny_model)
        (expected,) = finish(cold, request("r", PROMPT[:length], logprobs=0)).values()
        finish(warm, request("before", PROMPT))
        (found,) = finish(warm, request("r", PROMPT[:length], logprobs=0)).values()
        assert found[-1].cached_tokens == length - 1
        assert ids(found) == ids(expected)


@pytest.mark.parametrize("name", ["slipstream-chat", "slipstream-code"])
def test_a_hit_gives_a_shipped_model_the_same_text(name: str) -> None:
    engine = make_engine(SHIPPED / name, page_tokens=16)
    prompt = [11 + at * 7 % 1900 for at in range(300)]
    (cold,) = finish(engine, request("cold", prompt, logprobs=0, max_tokens=40)).values()
    (warm,) = finish(engine, request("warm", prompt, logprobs=0, max_tokens=40)).values()
    assert warm[-1].cached_tokens == 299
    assert ids(warm) == ids(cold)


def test_generated_tokens_are_found_by_the_next_turn(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    (first,) = finish(engine, request("first", PROMPT[:10], logprobs=0, max_tokens=12)).values()
    turn = PROMPT[:10] + ids(first) + [7, 7]
    # the last token generated was never computed
    assert serve(engine, "second", turn).cached_tokens == 21


def test_another_salt_finds_nothing(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    assert serve(engine, "a1", PROMPT, cache_salt="a").cached_tokens == 0
    assert serve(engine, "b1", PROMPT, cache_salt="b").cached_tokens == 0
    assert serve(engine, "plain", PROMPT).cached_tokens == 0
    assert serve(engine, "a2", PROMPT, cache_salt="a").cached_tokens == 44


def test_a_running_prompt_is_shared_before_it_ends(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    engine.submit(request("first", PROMPT, max_tokens=50))
    engine.step()
    engine.submit(request("second", PROMPT, max_tokens=1))
    (delta,) = [delta for delta in engine.step() if delta.rid == "second"]
    assert delta.cached_tokens == 44


def test_eviction_makes_room_and_forgets_the_oldest(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, pages=32)  # 128 tokens
    prompts = [[first, *PROMPT] for first in range(100, 104)]
    for at, prompt in enumerate(prompts):
        assert serve(engine, f"r{at}", prompt).cached_tokens == 0
    assert serve(engine, "newest", prompts[3]).cached_tokens == 45
    assert serve(engine, "oldest", prompts[0]).cached_tokens == 0
    assert engine.cache.evicted_pages > 0
    assert engine.scheduler.preemptions == 0


def test_choices_share_the_prompt_and_differ_after_it(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    engine.submit(request("r", PROMPT, choices=4, temperature=1.0, seed=3, max_tokens=3, logprobs=0))
    first = engine.step()
    assert sorted(delta.index for delta in first) == [0, 1, 2, 3]  # one prompt computed, four tokens sampled
    assert engine.pages.pinned == 12  # 45 tokens in pages of 4
    engine.step()
    assert engine.pages.pinned == 12 + 3  # all but the last owner copied the partial page
    drain(engine)
    assert engine.pages.pinned == 0


@pytest.mark.parametrize("length", [3, 44, 45])
def test_choices_are_what_each_would_be_alone(tiny_model: Path, length: int) -> None:
    asked: dict[str, Any] = {"temperature": 1.0, "seed": 3, "logprobs": 0, "max_tokens": 20}
    together = finish(make_engine(tiny_model), request("r", PROMPT[:length], choices=4, **asked))
    # one slot: no choice can start from another
    in_turn = finish(make_engine(tiny_model, max_running=1), request("r", PROMPT[:length], choices=4, **asked))
    assert {key: ids(deltas) for key, deltas in together.items()} == {key: ids(d) for key, d in in_turn.items()}
    assert len({tuple(ids(deltas)) for deltas in together.values()}) == 4


def test_hits_are_counted_once_per_prompt(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    finish(engine, request("cold", PROMPT))
    finish(engine, request("warm", PROMPT, choices=3))
    assert engine.stats.prompt_tokens == 90
    assert engine.stats.cached_tokens == 44


def test_priority_counts_and_waiting_makes_up_for_it(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_running=1, ageing_s=10.0)
    now = [0.0]
    engine._clock = lambda: now[0]
    for at_s, rid, priority in ((0.0, "running", 0), (1.0, "old", 0), (15.0, "high", 1), (15.5, "higher", 2)):
        now[0] = at_s
        engine.submit(request(rid, [5, 6], priority=priority, max_tokens=2))
    ends = [delta.rid for deltas in drain(engine).values() for delta in deltas if delta.finish]
    # "higher" counts as arrived at -4.5 s, "running" at 0, "old" at 1, "high" at 5
    assert ends == ["higher", "running", "old", "high"]
