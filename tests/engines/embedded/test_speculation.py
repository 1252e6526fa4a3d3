"""Guessing ahead never changes a text: greedy or sampled, alone or in any mixture."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engines.embedded.engine import Engine
from engines.embedded.live import LiveRequest
from engines.embedded.output import Delta
from engines.embedded.request import Request
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig
from tests.engines.embedded.tiny import SHIPPED, finish, make_engine, request, text

ALWAYS = SpeculationConfig(method="ngram", governed=False, ngram_least=1, max_drafts=5)
Texts = dict[tuple[str, int], tuple[str, list[int], list[float], str, int]]


def outcome(engine: Engine, *requests: Request) -> Texts:
    """Text, ids, log probabilities, finish and count of every choice."""

    def of(deltas: list[Delta]) -> tuple[str, list[int], list[float], str, int]:
        entries = [entry for delta in deltas for entry in delta.logprobs]
        end = deltas[-1]
        assert end.finish is not None
        logprobs = [entry.logprob for entry in entries]
        return text(deltas), [entry.id for entry in entries], logprobs, end.finish.reason, end.completion_tokens

    return {key: of(deltas) for key, deltas in finish(engine, *requests).items()}


def same(folder: Path, *requests: Request, **settings: Any) -> Engine:
    """Serve with drafts and without: everything must be equal. Returns the engine that guessed."""
    drafting = make_engine(folder, speculation=ALWAYS, **settings)
    found, expected = outcome(drafting, *requests), outcome(make_engine(folder, **settings), *requests)
    assert found.keys() == expected.keys()
    for key, (expected_text, ids, logprobs, reason, count) in expected.items():
        assert found[key][:2] == (expected_text, ids)
        assert found[key][3:] == (reason, count)
        assert found[key][2] == pytest.approx(logprobs, abs=2e-3)
    return drafting


# repeats itself, so that there is something to look up
PROMPT = [*range(20, 30), *range(20, 30), *range(20, 26)]


def test_greedy_text_is_the_same_and_takes_fewer_steps(tiny_model: Path) -> None:
    engine = same(tiny_model, request("r", PROMPT, max_tokens=80, logprobs=2))
    assert engine.stats.accepted_drafts > 0
    assert engine.stats.steps == 80 - engine.stats.accepted_drafts
    assert engine.stats.accept_length > 1


@pytest.mark.parametrize("name", ["slipstream-chat", "slipstream-code"])
def test_greedy_text_of_the_shipped_models_is_the_same(name: str) -> None:
    source = random.Random(4)
    words = [[source.randrange(300, 1900) for _ in range(4)] for _ in range(6)]
    prompts = [[id_ for _ in range(12) for id_ in source.choice(words)] for _ in range(4)]
    wanted = [request(f"r{at}", prompt, max_tokens=60, logprobs=0) for at, prompt in enumerate(prompts)]
    engine = same(SHIPPED / name, *wanted, page_tokens=16)
    assert engine.stats.accepted_drafts > 0


def test_what_fills_a_gap_of_a_real_file_is_the_same() -> None:
    """A completion quotes the file that stands around it."""
    tokenizer = Tokenizer.load(SHIPPED / "slipstream-code")
    text = Path(__file__).read_text()
    cuts = [text.index(word) + 3 for word in ("expected, ", "source.randrange", "{key:")]
    prompts = [tokenizer.fill_ids(text[:at][-2000:], text[at:][40:1040]) for at in cuts]
    wanted = [request(f"r{n}", ids, max_tokens=24, stop_ids=tokenizer.end_ids) for n, ids in enumerate(prompts)]
    engine = same(SHIPPED / "slipstream-code", *wanted, page_tokens=16, pages=512)
    assert engine.stats.accepted_drafts > 0


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.05},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.3},
        {"temperature": 0.0, "frequency_penalty": 0.5},
        {"temperature": 0.3, "presence_penalty": 1.5, "frequency_penalty": -1.0},
        {"temperature": 0.0, "logit_bias": ((25, 3.0), (26, 2.5), (27, -100.0))},
    ],
)
def test_a_seed_gives_the_same_text_guessed_or_not(tiny_model: Path, sampling: dict[str, Any]) -> None:
    wanted = [request(f"r{seed}", PROMPT, max_tokens=50, logprobs=0, seed=seed, **sampling) for seed in range(6)]
    assert same(tiny_model, *wanted).stats.drafts > 0


def test_any_mixture_is_the_same(tiny_model: Path) -> None:
    source = random.Random(9)
    wanted = [
        request(
            f"r{at}",
            [*PROMPT[: source.randrange(1, 26)], *source.choices(range(20, 30), k=source.randrange(20))],
            max_tokens=source.randrange(1, 60),
            choices=source.choice((1, 1, 3)),
            temperature=source.choice((0.0, 0.0, 0.8)),
            seed=at,
            logprobs=source.choice((None, 0, 2)),
            speculate=source.random() < 0.8,
        )
        for at in range(16)
    ]
    # chunked, preempted, and with too little budget for everybody's drafts
    engine = same(tiny_model, *wanted, pages=48, max_batch_tokens=16, output_reserve=0.0)
    assert engine.scheduler.preemptions > 0
    assert 0 < engine.stats.accepted_drafts < engine.stats.drafts


def test_stops_and_limits_inside_a_run_of_guesses_cut_it(tiny_model: Path) -> None:
    (whole,) = outcome(make_engine(tiny_model), request("r", PROMPT, max_tokens=40, logprobs=0)).values()
    stops = sorted({whole[1].index(id_) for id_ in whole[1]})[-3:]
    wanted = [request(f"stop{at}", PROMPT, max_tokens=40, stop_ids=frozenset([whole[1][at]])) for at in stops]
    wanted += [request(f"length{at}", PROMPT, max_tokens=at, logprobs=0) for at in range(1, 30, 3)]
    same(tiny_model, *wanted)


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0, "top_k": 3, "seed": 3}])
def test_no_id_ends_a_text_too_early_inside_a_run_of_guesses(tiny_model: Path, sampling: dict[str, Any]) -> None:
    (whole,) = outcome(make_engine(tiny_model), request("r", PROMPT, max_tokens=40, logprobs=0, **sampling)).values()
    ends = frozenset(whole[1][4:8])
    wanted = [
        request(f"r{least}", PROMPT, max_tokens=40, logprobs=0, stop_ids=ends, min_tokens=least, **sampling)
        for least in (0, 1, 7, 12, 40)
    ]
    assert same(tiny_model, *wanted).stats.drafts > 0
    for (rid, _), (_, ids, _, _, _) in outcome(make_engine(tiny_model), *wanted).items():
        least = int(rid.removeprefix("r"))
        assert len(ids) >= least
        assert not ends & set(ids[: max(0, least - 1)]), "an end would have been the last"
        assert ends.isdisjoint(ids[:-1])


def test_a_request_or_the_engine_can_refuse(tiny_model: Path) -> None:
    for engine, speculate in ((make_engine(tiny_model, speculation=ALWAYS), False), (make_engine(tiny_model), True)):
        finish(engine, request("r", PROMPT, max_tokens=40, speculate=speculate))
        assert engine.stats.drafts == 0


def test_each_request_is_told_its_own_guesses_in_sglangs_words(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, speculation=ALWAYS)
    guessed, plain = request("g", PROMPT, max_tokens=80, choices=2), request("p", PROMPT, max_tokens=9, speculate=False)
    news = finish(engine, guessed, plain)
    told = {}
    for one in (guessed, plain):
        live = LiveRequest(one)
        for (rid, _), deltas in news.items():
            for delta in deltas if rid == one.rid else ():
                live.put(delta)
        told[one.rid] = live.usage().extension()
    assert told["p"] is not None
    assert told["g"] is not None
    assert "spec_tokens_details" not in told["p"]
    details = told["g"]["spec_tokens_details"]
    assert isinstance(details, list)
    assert sum(one["spec_num_proposed_drafts"] for one in details) == engine.stats.drafts > 0
    assert sum(one["spec_num_correct_drafts"] for one in details) == engine.stats.accepted_drafts > 0
    assert sum(one["spec_verify_ct"] for one in details) == engine.stats.draft_checks
    assert details[0]["spec_accept_length"] == 1 + details[0]["spec_num_correct_drafts"] / details[0]["spec_verify_ct"]


def test_the_governor_is_told_what_steps_yield(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, speculation=SpeculationConfig(method="ngram", ngram_least=1, probe_steps=8))
    now = [0.0]

    def clock() -> float:
        # read when a step begins, and before its drafts are settled: one with drafts takes nine times as long
        now[0] += 9.0 if any(sequence.drafts for sequence in engine.scheduler.running) else 1.0
        return now[0]

    engine._clock = clock
    finish(engine, request("r", PROMPT, max_tokens=150))
    assert not engine._drafter.governor._size(1).on
    assert engine.stats.drafts > 0
