"""Token choice: filters, penalties, bias, and the distribution they leave."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from engines.embedded import sampler
from engines.embedded.sampler import _adjust_, pick
from engines.embedded.sequence import Sequence
from engines.tokenizer.text_stream import BytesTextStream
from tests.engines.embedded.tiny import request

LOGITS = [2.0, 1.0, 0.0, -1.0]
PROBABILITIES = torch.softmax(torch.tensor(LOGITS), 0)


def row(**sampling: Any) -> Sequence:
    settings = {"temperature": 1.0, "seed": 1, "max_tokens": 1000, **sampling}
    return Sequence(request("r", [0], **settings), 0, BytesTextStream({}), len(LOGITS), 0.0)


def logits(rows: int = 1) -> Tensor:
    return torch.tensor([LOGITS] * rows)


DRAWS = 1_500


def frequencies(count: int = DRAWS, **sampling: Any) -> Tensor:
    sequence = row(**sampling)
    ids = [pick(logits(), (sequence,))[0].id for _ in range(count)]
    return torch.bincount(torch.tensor(ids), minlength=4) / count


def close(measured: Tensor, expected: Tensor) -> bool:
    """Within five standard errors."""
    return bool((measured - expected).abs().max() < 5 * math.sqrt(0.25 / DRAWS))


def test_temperature_zero_takes_the_likeliest() -> None:
    assert pick(logits(), (row(temperature=0.0),))[0].id == 0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_tempered_distribution(temperature: float) -> None:
    expected = torch.softmax(torch.tensor(LOGITS) / temperature, 0)
    assert close(frequencies(temperature=temperature), expected)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        ({"top_k": 2}, 2),
        ({"top_p": 0.7}, 2),  # 0.64, then 0.88
        ({"top_p": 0.01}, 1),
        ({"min_p": 0.1}, 3),  # shares of the likeliest: 1, 0.37, 0.14, 0.05
        ({"top_k": 3, "top_p": 0.7}, 2),
    ],
)
def test_filters_keep_the_likeliest_and_their_proportions(sampling: dict[str, Any], kept: int) -> None:
    expected = PROBABILITIES.clone()
    expected[kept:] = 0
    measured = frequencies(**sampling)
    assert (measured[kept:] == 0).all()
    assert close(measured, expected / expected.sum())


def test_penalties_lower_what_was_generated() -> None:
    sequence = row(temperature=0.0, frequency_penalty=0.6, presence_penalty=0.5)
    sequence.append(0)
    assert pick(logits(), (sequence,))[0].id == 1  # 2.0 - 0.6 - 0.5 < 1.0
    sequence.append(1)
    assert pick(logits(), (sequence,))[0].id == 0


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_the_repetition_penalty_is_that_of_the_paper(penalty: float) -> None:
    """CTRL's (1909.05858), of the prompt and the output, beside a plain twin: one draft at a time and several."""
    prompt, drafts = [0], [3, 2]
    sequence = row(repetition_penalty=penalty, logprobs=0, frequency_penalty=0.1)
    sequence.append(1)
    sequence.drafts = list(drafts)
    given = logits(3)
    _adjust_(given, (sequence,) * 3)
    for ahead, found in enumerate(given.tolist()):
        output = [1, *drafts[:ahead]]
        for id_, logit in enumerate(LOGITS):
            expected = logit
            if id_ in prompt + output:
                expected = logit / penalty if logit > 0 else logit * penalty
            assert found[id_] == pytest.approx(expected - 0.1 * output.count(id_)), (ahead, id_)
    assert not sequence.takes_trees
    assert not sequence.greedy_only


def test_a_penalty_of_one_costs_nothing() -> None:
    sequence = row(temperature=0.0, repetition_penalty=1.0)
    assert sequence.seen is None
    assert sequence.greedy_only


def test_the_choices_of_a_request_share_their_bias() -> None:
    """Fault: 300 ids in each of 128 choices took 0.1 s, for which all streams waited."""
    several = request("r", [0], choices=2, logit_bias=((3, 1.0), (0, -2.0)))
    one, other = (Sequence(several, index, BytesTextStream({}), len(LOGITS), 0.0) for index in range(2))
    assert one.bias is not None
    assert one.bias is other.bias
    assert one.bias.tolist() == [-2.0, 0.0, 0.0, 1.0]


def test_bias_can_force_and_forbid() -> None:
    assert pick(logits(), (row(temperature=0.0, logit_bias=((3, 100.0),)),))[0].id == 3
    assert frequencies(200, logit_bias=((0, -100.0),))[0] == 0


def test_mixed_rows_are_the_same_as_each_alone() -> None:
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"seed": 3},
        {"seed": 4, "top_p": 0.8},
        {"seed": 5, "top_k": 1},
    ]
    together = tuple(row(**kind) for kind in kinds)
    single = [row(**kind) for kind in kinds]
    for _ in range(50):
        mixed = [picked.id for picked in pick(logits(4), together)]
        assert mixed == [pick(logits(), (sequence,))[0].id for sequence in single]


def test_log_probabilities_are_the_models_own() -> None:
    sequence = row(temperature=0.3, logprobs=2, logit_bias=((3, 100.0),))
    picked = pick(logits(), (sequence,))[0]
    assert picked.logprob is not None
    assert picked.logprob.id == 3
    assert picked.logprob.logprob == pytest.approx(math.log(PROBABILITIES[3]), abs=1e-5)
    assert [id_ for id_, _ in picked.logprob.top] == [0, 1]
    assert picked.logprob.top[0][1] == pytest.approx(math.log(PROBABILITIES[0]), abs=1e-5)


def test_a_large_vocabulary_never_draws_an_impossible_token() -> None:
    scores = torch.full((1, 50_000), float("-inf"))
    scores[0, 49_999] = 0.0
    sequence = Sequence(request("r", [0], temperature=1.0, max_tokens=9), 0, BytesTextStream({}), 50_000, 0.0)
    assert {pick(scores.clone(), (sequence,))[0].id for _ in range(20)} == {49_999}


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("rounded", [False, True])
def test_sorting_only_the_likeliest_changes_no_weight(
    spread: float, rounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flat rows and rows of many equal logits included, where the likeliest few do not suffice."""
    vocabulary = 2_000
    scores = torch.randn(4, vocabulary, generator=torch.Generator().manual_seed(3)) * spread
    scores = scores.round() if rounded else scores
    filters: tuple[dict[str, Any], ...] = ({"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}, {"top_p": 0.5, "top_k": 300})
    rows = [row(**each) for each in filters]
    few = sampler._filtered(scores, rows)
    alone = [sampler._filtered(scores[at : at + 1], [one])[0] for at, one in enumerate(rows)]
    monkeypatch.setattr(sampler, "LIKELIEST", vocabulary)
    assert torch.equal(few, sampler._filtered(scores, rows))
    assert torch.equal(few, torch.stack(alone))
