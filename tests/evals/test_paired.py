"""The difference of two answers to the same items, and how sure it is, beside textbooks and slow simulations."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from benchmarks.gated.rivals import unpaired_p
from evals.statistics.distributions import student_quantile
from evals.statistics.paired import (
    Flips,
    clustered,
    flips,
    lower_by_counts,
    more_losses,
    upper_by_counts,
)


def test_alone_in_its_cluster_an_item_is_an_item() -> None:
    differences = [0.0, -1.0, 1.0, -1.0, 0.0, 0.5]
    found = clustered((str(place), value) for place, value in enumerate(differences))
    assert found.mean == pytest.approx(statistics.mean(differences))
    assert found.error == pytest.approx(statistics.stdev(differences) / math.sqrt(6))
    assert found.freedom == pytest.approx(5.0)
    assert (found.clusters, found.cluster_items) == (6, 1.0)


def test_clusters_of_a_size_count_by_their_means() -> None:
    differences = {"a": [0.0, -1.0, -1.0], "b": [0.0, 0.0, 1.0], "c": [0.0, 0.0, 0.0], "d": [-1.0, 0.0, 0.0]}
    found = clustered((name, value) for name, values in differences.items() for value in values)
    means = [statistics.mean(values) for values in differences.values()]
    assert found.mean == pytest.approx(statistics.mean(means))
    assert found.error == pytest.approx(statistics.stdev(means) / 2)
    assert found.freedom == pytest.approx(3.0)


def test_freedom_is_satterthwaites_of_the_whole_matrix() -> None:
    sizes = [1, 2, 3, 30, 7]
    found = clustered((str(place), 0.0) for place, size in enumerate(sizes) for _ in range(size))
    assert found.freedom == pytest.approx(min(_slow_freedom(sizes, True), _slow_freedom(sizes, False)))
    assert found.freedom < len(sizes) - 1


def _slow_freedom(sizes: list[int], correlated: bool) -> float:
    """By the matrix: adjusted residual sums are B S with S the clusters' sums."""
    items, count = sum(sizes), len(sizes)
    own = [float(size * size if correlated else size) for size in sizes]
    adjusted = [
        [((row == column) - sizes[row] / items) / math.sqrt(1 - sizes[row] / items) for column in range(count)]
        for row in range(count)
    ]
    matrix = [[sum(left[k] * own[k] * right[k] for k in range(count)) for right in adjusted] for left in adjusted]
    return sum(matrix[k][k] for k in range(count)) ** 2 / sum(entry**2 for row in matrix for entry in row)


@pytest.mark.parametrize(("count", "size"), [(8, 25), pytest.param(30, 10, marks=pytest.mark.nightly)])
def test_where_clusters_lose_together_the_error_says_so(count: int, size: int) -> None:
    """Students' interval covers the truth as often as it says; one that forgets the clusters does not."""
    draw = random.Random(5)
    covered = forgetful = 0
    for _ in range(600):
        rows = []
        for cluster in range(count):
            losing = draw.betavariate(0.5, 4.5)
            rows += [(str(cluster), -1.0 if draw.random() < losing else 0.0) for _ in range(size)]
        found = clustered(rows)
        covered += abs(found.mean + 0.1) <= student_quantile(0.05, found.freedom) * found.error
        plain = clustered((str(place), value) for place, (_, value) in enumerate(rows))
        forgetful += abs(plain.mean + 0.1) <= student_quantile(0.05, plain.freedom) * plain.error
    assert 0.84 <= covered / 600 <= 0.94
    assert forgetful / 600 < 0.8


def test_a_single_cluster_has_no_freedom_and_nothing_is_no_item() -> None:
    assert clustered([("a", -1.0), ("a", 0.0)]).freedom == 0.0
    with pytest.raises(ValueError, match="no items"):
        clustered([])


def test_bounds_by_counts_are_exact_where_one_side_alone_is_seen() -> None:
    none = Flips(0, 0, 150)
    assert lower_by_counts(none, 0.05) == pytest.approx(0.05 ** (1 / 150) - 1.0)
    assert upper_by_counts(none, 0.05) == pytest.approx(1.0 - 0.05 ** (1 / 150))
    # 4 losses in 100: 8.92 % is Clopper and Pearson's one-sided 95 % limit (NIST handbook 7.2.4.1, for 90 % two-sided)
    assert lower_by_counts(Flips(4, 0, 20), 0.05) == pytest.approx(-0.4010, abs=5e-4)


@pytest.mark.parametrize("flipping", [0.03, 0.1])
@pytest.mark.parametrize("items", [60, 300])
def test_bounds_by_counts_hold_for_few_flips(flipping: float, items: int) -> None:
    """At the margin, summed over every outcome with its exact probability: a slow proof for each of these cases."""
    margin = 0.02
    lost, won = (flipping + margin) / 2, (flipping - margin) / 2
    wrong = 0.0
    most = int(items * flipping + 10 * math.sqrt(items * flipping) + 10)
    for losses, wins in itertools.product(range(most), range(most)):
        if losses + wins > items:
            continue
        probability = math.exp(
            math.lgamma(items + 1) - math.lgamma(losses + 1) - math.lgamma(wins + 1)
            - math.lgamma(items - losses - wins + 1)
            + losses * math.log(lost) + wins * math.log(won) + (items - losses - wins) * math.log(1 - lost - won)
        )  # fmt: skip
        if probability > 1e-9 and lower_by_counts(Flips(losses, wins, items), 0.05) > -margin:
            wrong += probability
    assert wrong <= 0.05


def test_mcnemars_exact_test_is_the_sum_of_a_binomial() -> None:
    for losses, wins in ((7, 1), (12, 3), (1, 0), (5, 5)):
        slow = sum(math.comb(losses + wins, k) for k in range(losses, losses + wins + 1)) / 2 ** (losses + wins)
        assert more_losses(Flips(losses, wins, 500)) == pytest.approx(slow)
    assert more_losses(Flips(0, 9, 500)) == 1.0


def test_an_unpaired_comparison_misses_what_the_paired_one_shows() -> None:
    """lm-evaluation-harness#3868: 220 items, p = 0.080 unpaired and 0.008 by McNemar's exact test of the same answers.
    The counts are not told there; 97 right, of which 30 were lost, and 12 won give both."""
    assert unpaired_p((97, 79), 220) == pytest.approx(0.080, abs=0.001)
    counted = Flips(30, 12, 220)
    assert 2 * more_losses(counted) == pytest.approx(0.008, abs=0.0005)
    assert upper_by_counts(counted, 0.025) < 0.0
    assert unpaired_p((220, 220), 220) == 1.0


def test_part_of_a_score_is_part_of_a_flip() -> None:
    found = flips([0.0, -0.5, -0.25, 1.0])
    assert (found.losses, found.wins, found.items, found.share) == (0.75, 1.0, 4, 0.4375)
