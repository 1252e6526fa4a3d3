"""Speculation must not change what is sampled: by exact enumeration, by chi-square, and against controls that fail."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from speculative.rules import accepted_prefix
from speculative.verify import verify
from tests.speculative.plain_chain import acceptance, chain, residual

Rows = list[list[Fraction]]
Law = dict[tuple[int, ...], Fraction]


def rows(source: random.Random, count: int, width: int) -> Rows:
    """Random distributions, with zeros in them."""
    made: Rows = []
    for _ in range(count):
        weights = [source.choice((0, 1, 1, 2, 5, 9)) for _ in range(width)]
        weights[source.randrange(width)] += 1
        made.append([Fraction(weight, sum(weights)) for weight in weights])
    return made


class Tables:
    """A target and a draft model over a tiny vocabulary: a distribution for every context up to a length."""

    def __init__(self, seed: int, width: int = 3, depth: int = 2) -> None:
        source = random.Random(seed)
        self.width, self.depth = width, depth
        contexts = [c for size in range(depth + 1) for c in itertools.product(range(width), repeat=size)]
        self.p = dict(zip(contexts, rows(source, len(contexts), width), strict=True))
        self.q = dict(zip(contexts, rows(source, len(contexts), width), strict=True))

    def plain(self) -> Law:
        """The law of depth + 1 tokens sampled from the target one by one."""
        law: Law = {}
        for text in itertools.product(range(self.width), repeat=self.depth + 1):
            chance = Fraction(1)
            for at, token in enumerate(text):
                chance *= self.p[text[:at]][token]
            law[text] = chance
        return law

    def completed(self, emitted: tuple[int, ...], chance: Fraction, law: Law) -> None:
        """A step emitted fewer than depth + 1 tokens: the target goes on alone."""
        if len(emitted) == self.depth + 1:
            law[emitted] = law.get(emitted, Fraction(0)) + chance
            return
        for token in range(self.width):
            if more := self.p[emitted][token]:
                self.completed((*emitted, token), chance * more, law)


def chain_law(tables: Tables, accept: Callable[[list[Fraction], list[Fraction], int], Fraction]) -> Law:
    """The exact law of one speculative step, completed: all drafts, all verdicts."""
    law: Law = {}

    def follow(kept: tuple[int, ...], chance: Fraction) -> None:
        p, q = tables.p[kept], tables.q.get(kept)
        if len(kept) == tables.depth or q is None:
            tables.completed(kept, chance, law)
            return
        for draft in range(tables.width):
            if not q[draft]:
                continue
            keep = accept(p, q, draft)
            if keep:
                follow((*kept, draft), chance * q[draft] * keep)
            if keep < 1:
                for token, weight in enumerate(residual(p, q)):
                    if weight:
                        tables.completed((*kept, token), chance * q[draft] * (1 - keep) * weight, law)

    follow((), Fraction(1))
    return law


def nonzero(law: Law) -> Law:
    return {text: chance for text, chance in law.items() if chance}


@pytest.mark.parametrize("seed", range(40))
def test_the_chain_rule_gives_exactly_the_targets_law(seed: int) -> None:
    tables = Tables(seed)
    assert nonzero(chain_law(tables, acceptance)) == nonzero(tables.plain())


def test_accepting_everything_does_not() -> None:
    tables = Tables(0)
    assert nonzero(chain_law(tables, lambda p, q, token: Fraction(1))) != nonzero(tables.plain())


def test_a_q_that_is_not_what_was_drawn_from_does_not() -> None:
    # raw q in the test while the drafts came from another one
    tables = Tables(0)
    flat = [Fraction(1, 3)] * 3
    assert nonzero(chain_law(tables, lambda p, q, token: acceptance(p, flat, token))) != nonzero(tables.plain())


@pytest.mark.parametrize("seed", range(20))
def test_point_mass_drafts_keep_exactly_the_targets_law(seed: int) -> None:
    """Every position is picked by a coin of its own; kept as long as the pick is the draft."""
    tables = Tables(seed, width=3, depth=2)
    source = random.Random(seed)
    drafts = [source.randrange(3) for _ in range(2)]
    law: Law = {}
    for picks in itertools.product(range(3), repeat=3):
        chance = Fraction(1)
        for at, pick in enumerate(picks):
            chance *= tables.p[tuple(drafts[:at])][pick]
        kept = accepted_prefix(drafts, picks)
        if chance:
            tables.completed(picks[: kept + 1], chance, law)
    assert nonzero(law) == nonzero(tables.plain())


def test_a_draft_that_is_the_target_is_always_kept_and_a_disjoint_one_never() -> None:
    p = [[Fraction(1, 2), Fraction(1, 2), Fraction(0)]] * 2
    for coin in (Fraction(0), Fraction(1, 3), Fraction(999, 1000)):
        assert chain(p, [p[0]], [1], [coin, coin])[0] == 1
        assert chain(p, [[Fraction(0), Fraction(0), Fraction(1)]], [2], [coin, Fraction(3, 4)]) == (0, 1)


def test_no_drafts_is_plain_sampling() -> None:
    p = [Fraction(1, 4), Fraction(3, 4)]
    assert chain([p], [], [], [Fraction(1, 5)]) == (0, 0)
    assert chain([p], [], [], [Fraction(1, 4)]) == (0, 1)


@given(st.integers(0, 10_000), st.integers(0, 4), st.data())
def test_tensors_follow_the_rules(seed: int, count: int, data: st.DataObject) -> None:
    source = random.Random(seed)
    p, q = rows(source, count + 1, 4), rows(source, count, 4)
    drafts = [source.choices(range(4), [float(weight) for weight in row])[0] for row in q]
    # odd denominators: never on a boundary, where rounding decides
    coins = [Fraction(2 * data.draw(st.integers(0, 5000)) + 1, 10_007) for _ in range(count + 1)]
    expected = chain(p, q, drafts, coins)
    got = verify(tensor(p, 4), tensor(q, 4), torch.tensor(drafts, dtype=torch.int64), torch.tensor(floats(coins)))
    assert (got.kept, got.next_id) == expected


def floats(values: list[Fraction]) -> list[float]:
    return [float(value) for value in values]


def tensor(values: Rows, width: int) -> Tensor:
    return torch.tensor([floats(row) for row in values], dtype=torch.float64).view(-1, width)


def chi_square(counts: Tensor, expected: Tensor) -> float:
    """The statistic's distance from its mean in standard deviations (Wilson and Hilferty), cells of chance 0 apart."""
    assert int(counts[expected == 0].sum()) == 0
    cells = expected > 0
    statistic = float(((counts - expected)[cells] ** 2 / expected[cells]).sum())
    freedom = int(cells.sum()) - 1
    third: float = (statistic / freedom) ** (1 / 3)
    return (third - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))


SIGMAS = 6.0  # one false alarm in a thousand million


def sampled_pairs(accept_all: bool, rounds: int) -> tuple[Tensor, Tensor]:
    """Counts of the first two tokens of speculative rounds with two drafts, and what the target would give."""
    generator = torch.Generator().manual_seed(5)
    width = 6
    first, second = (torch.softmax(torch.randn(width, generator=generator), 0) for _ in range(2))
    after = torch.softmax(torch.randn(width, width, generator=generator), -1)  # p of the second token by the first
    counts = torch.zeros(width, width, dtype=torch.float64)
    for _ in range(rounds):
        drafts = torch.stack([torch.multinomial(row, 1, generator=generator)[0] for row in (second, first)])
        target = torch.stack([first, after[drafts[0]], after[drafts[1]]])
        coins = torch.rand(3, generator=generator, dtype=torch.float64)
        if accept_all:
            coins[:2] = 0.0
        count, next_id = verify(target, torch.stack([second, first]), drafts, coins)
        emitted = [*drafts.tolist()[:count], next_id]
        if len(emitted) == 1:  # the second token comes from the next step
            emitted.append(int(torch.multinomial(after[next_id], 1, generator=generator)))
        counts[emitted[0], emitted[1]] += 1
    return counts.flatten(), (first[:, None] * after).flatten().double() * rounds


@pytest.mark.parametrize("rounds", [3_000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_committed_tokens_have_the_targets_distribution_and_the_test_would_notice_if_all_were_accepted(
    rounds: int,
) -> None:
    assert chi_square(*sampled_pairs(accept_all=False, rounds=rounds)) < SIGMAS
    assert chi_square(*sampled_pairs(accept_all=True, rounds=rounds)) > SIGMAS


def test_shapes_that_do_not_fit_are_errors() -> None:
    p = torch.full((2, 3), 1 / 3)
    with pytest.raises(ValueError, match="target rows"):
        verify(p, p, torch.tensor([0, 1]), torch.rand(3))
    with pytest.raises(ValueError, match="coins"):
        verify(p, p[:1], torch.tensor([0]), torch.rand(3))


def test_a_draft_probability_that_is_no_number_is_rejected() -> None:
    p = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    q = torch.tensor([[float("nan"), 0.5]])
    assert verify(p, q, torch.tensor([0]), torch.tensor([0.0, 0.1])).kept == 0
