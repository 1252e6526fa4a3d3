"""Every item says what it was made from, so that a comparison does not count its siblings as independent."""

from __future__ import annotations

import collections

import pytest

from evals.slices.item import Slice
from evals.slices.registry import SLICES, find


@pytest.mark.parametrize("one", SLICES, ids=lambda one: one.name)
def test_items_are_of_more_than_a_few_clusters(one: Slice) -> None:
    count = 20 if one.name.startswith("retrieval") else 300
    clusters = collections.Counter(one.item(seed).cluster for seed in range(count))
    assert "" not in clusters
    assert len(clusters) >= 8
    assert clusters.most_common(1)[0][1] < count / 2


def test_a_cluster_is_what_the_items_have_in_common() -> None:
    for name, needle in (("code", "squares a number"), ("greetings", "Slipstream's small chat model")):
        items = [find(name).item(seed) for seed in range(300)]
        together = {item.cluster for item in items if needle in item.cluster}
        assert len(together) <= 2, "one kind of question is one cluster, however it is asked"
    harmful = [find("refusals").item(seed) for seed in range(50)]
    assert all(item.cluster in item.messages[0]["content"] for item in harmful)


def test_a_score_is_a_number() -> None:
    item = find("facts").item(0)
    assert (item.score(item.reference), item.score("?")) == (1.0, 0.0)
