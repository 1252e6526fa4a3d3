"""Outputs that must begin with a text: it is written first, by whatever tokens, and not told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engines.embedded.engine import Engine
from engines.embedded.request import Request
from engines.embedded.sequence import Sequence
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig
from tests.engines.embedded.tiny import SHIPPED, finish, make_engine, request, text

CHAT = Tokenizer.load(SHIPPED / "slipstream-chat")
PROMPT = [*range(20, 30), *range(20, 30)]
OPENINGS = ["a", " offse", "é", "wörld 🙂", "x\n  y", "0" * 9]


def opened(rid: str, opening: str, **fields: Any) -> Request:
    return msgspec.structs.replace(request(rid, PROMPT, **fields), opening=CHAT.opening(opening))


def ids_of(engine: Engine, one: Request) -> dict[int, list[int]]:
    """Of every choice, with those that only spell the opening."""
    engine.submit(one)
    seen: dict[int, Sequence] = {}
    while engine.busy:
        engine.step()
        seen |= {sequence.index: sequence for sequence in engine.scheduler.running}
    return {index: sequence.tokens[sequence.prompt_tokens :] for index, sequence in seen.items()}


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0, "top_p": 0.9, "seed": 4}]
)
def test_every_choice_begins_with_it_and_tells_only_what_follows(
    tiny_model: Path, opening: str, sampling: dict[str, Any]
) -> None:
    one = opened("r", opening, choices=2, max_tokens=40, **sampling)
    written = ids_of(make_engine(tiny_model), one)
    told = finish(make_engine(tiny_model), one)
    assert len(written) == 2
    for index, ids in written.items():
        whole = CHAT.decode(ids)
        assert whole.startswith(opening)
        rest = text(told["r", index])
        assert whole[len(opening) :] in (rest, f"{rest}\ufffd"), "a character cut by the limit is left out"
        assert told["r", index][-1].completion_tokens == 40


def test_the_first_token_is_the_likeliest_of_those_that_lead_there(tiny_model: Path) -> None:
    """Against the naive way: all tokens' log probabilities, and a search."""
    [plain] = finish(make_engine(tiny_model), request("p", PROMPT, max_tokens=1, logprobs=20)).values()
    ranked = [id_ for id_, _ in plain[0].logprobs[0].top]
    fitting = CHAT.token_bytes(ranked[7])
    opening = fitting.decode()[:1]
    expected = next(id_ for id_ in ranked if CHAT.token_bytes(id_).decode(errors="replace")[:1] == opening)
    [ids] = ids_of(make_engine(tiny_model), opened("r", opening, max_tokens=2)).values()
    assert ids[0] == expected


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}])
def test_an_end_that_alone_leads_there_is_not_withheld(tiny_model: Path, sampling: dict[str, Any]) -> None:
    """Fault: with `min_tokens` no token was left, and the output went on without the opening."""
    opening = "\U0010ffff"
    [only] = CHAT.opening(opening).start().allowed()
    one = opened("r", opening, max_tokens=24, min_tokens=20, stop_ids=frozenset((only,)), **sampling)
    assert finish(make_engine(tiny_model), one)["r", 0][-1].completion_tokens == 1


def test_guesses_change_nothing(tiny_model: Path) -> None:
    drafts = SpeculationConfig(method="ngram", governed=False, ngram_least=1)
    one = opened("r", "wörld", max_tokens=60)
    drafting = make_engine(tiny_model, speculation=drafts)
    assert text(finish(drafting, one)["r", 0]) == text(finish(make_engine(tiny_model), one)["r", 0])
    assert drafting.stats.accepted_drafts > 0


def test_stop_strings_are_looked_for_behind_it(tiny_model: Path) -> None:
    [free] = finish(make_engine(tiny_model), opened("r", "end", max_tokens=30)).values()
    [stopped] = finish(make_engine(tiny_model), opened("r", "end", max_tokens=30, stop=("end",))).values()
    assert "end" not in text(free)
    assert text(stopped) == text(free)


def test_log_probabilities_begin_where_the_told_text_does(tiny_model: Path) -> None:
    one = opened("r", "wörld", max_tokens=30, logprobs=0)
    [ids] = ids_of(make_engine(tiny_model), one).values()
    [deltas] = finish(make_engine(tiny_model), one).values()
    told = [entry.id for delta in deltas for entry in delta.logprobs]
    assert told
    assert ids[-len(told) :] == told
    before = CHAT.decode(ids[: len(ids) - len(told)])
    assert "wörld".startswith(before), "only tokens that tell nothing are left out"


def test_a_preempted_sequence_goes_on_in_its_text(tiny_model: Path) -> None:
    chance = random.Random(5)
    many = [opened(f"r{n}", chance.choice(OPENINGS), max_tokens=30) for n in range(6)]
    alone = {one.rid: text(finish(make_engine(tiny_model), one)[one.rid, 0]) for one in many}
    crowded = make_engine(tiny_model, pages=40, output_reserve=0.0)
    together = finish(crowded, *many)
    assert {rid: text(deltas) for (rid, _), deltas in together.items()} == alone
    assert crowded.scheduler.preemptions > 0
