"""Guesses that branch: what is kept leaves the distribution as it is, and what is grown are the likeliest branches."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speculative.eagle.branches import grow
from speculative.eagle.config import HeadConfig
from speculative.eagle.head import EagleHead
from speculative.rules import accepted_path, accepted_prefix
from speculative.tree import DraftTree
from tests.speculative.test_lossless import Law, Tables, nonzero

Path = Callable[[list[int], list[int], list[int]], list[int]]


def random_tree(source: random.Random, width: int, depth: int) -> DraftTree:
    """Any tree over the vocabulary 0 .. width - 1, in an order in which parents come first."""
    tree = DraftTree([], [])
    depths = [0]
    for _ in range(source.randrange(1, 7)):
        parent = source.randrange(-1, len(tree.ids))
        token = source.randrange(width)
        if depths[parent + 1] < depth and (parent, token) not in zip(tree.parents, tree.ids, strict=True):
            tree.ids.append(token)
            tree.parents.append(parent)
            depths.append(depths[parent + 1] + 1)
    return tree


def tree_law(tables: Tables, tree: DraftTree, path_of: Path, *, shared: bool) -> Law:
    """The exact law of a step that checks a tree, completed. shared: nodes equally deep have one coin, so that their
    picks hang together; otherwise each has its own."""
    lines = [(), *[tuple(tree.ids[node] for node in line) for line in tree.ancestors()]]
    law: Law = {}
    if shared:
        levels = range(max(tree.depths()) + 1)
        # between two neighbouring cuts a coin picks the same everywhere
        cuts = {Fraction(0), Fraction(1)}
        for line in lines:
            cuts |= set(itertools.accumulate(tables.p[line]))
        edges = sorted(cuts)
        pieces = [(low, high - low) for low, high in itertools.pairwise(edges)]
        for coins in itertools.product(pieces, repeat=len(levels)):
            chance = Fraction(1)
            for _, size in coins:
                chance *= size
            picked = [_inverse(tables.p[line], coins[len(line)][0]) for line in lines]
            _add(tables, tree, picked, path_of, chance, law)
        return law
    for picks in itertools.product(range(tables.width), repeat=len(lines)):
        chance = Fraction(1)
        for line, pick in zip(lines, picks, strict=True):
            chance *= tables.p[line][pick]
        if chance:
            _add(tables, tree, list(picks), path_of, chance, law)
    return law


def _add(tables: Tables, tree: DraftTree, picked: list[int], path_of: Path, chance: Fraction, law: Law) -> None:
    path = path_of(tree.ids, tree.parents, picked)
    last = picked[path[-1] + 1] if path else picked[0]
    tables.completed((*[tree.ids[node] for node in path], last), chance, law)


def _inverse(p: list[Fraction], coin: Fraction) -> int:
    return next(token for token, total in enumerate(itertools.accumulate(p)) if coin < total)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shared", [True, False])
def test_a_tree_keeps_exactly_the_targets_law(seed: int, shared: bool) -> None:
    tables = Tables(seed, width=3, depth=2)
    tree = random_tree(random.Random(seed), 3, 2)
    assert nonzero(tree_law(tables, tree, accepted_path, shared=shared)) == nonzero(tables.plain())


def test_accepting_everything_does_not() -> None:
    def first_branch(drafts: list[int], parents: list[int], picked: list[int]) -> list[int]:
        path = [0]
        while (
            following := next((node for node, parent in enumerate(parents) if parent == path[-1]), None)
        ) is not None:
            path.append(following)
        return path

    tables = Tables(0, width=3, depth=2)
    tree = DraftTree([0, 1, 2], [-1, 0, -1])
    assert nonzero(tree_law(tables, tree, first_branch, shared=True)) != nonzero(tables.plain())


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), min_size=7, max_size=7))
def test_a_tree_without_branches_is_a_chain(drafts: list[int], picked: list[int]) -> None:
    parents = list(range(-1, len(drafts) - 1))
    kept = accepted_prefix(drafts, picked)
    assert accepted_path(drafts, parents, picked) == list(range(kept))
    assert DraftTree(drafts, parents).depths() == list(range(len(drafts) + 1))


def test_the_branch_that_was_picked_is_followed() -> None:
    tree = DraftTree([5, 6, 7, 5], [-1, -1, 1, 2])
    assert tree.depths() == [0, 1, 1, 2, 3]
    assert tree.ancestors() == [[0], [1], [1, 2], [1, 2, 3]]
    assert accepted_path(tree.ids, tree.parents, [6, 0, 7, 5, 9]) == [1, 2, 3]
    assert accepted_path(tree.ids, tree.parents, [5, 0, 7, 5, 9]) == [0]
    assert accepted_path(tree.ids, tree.parents, [8, 5, 6, 7, 5]) == []


HEAD = HeadConfig(
    vocab_size=24, draft_vocab_size=20, hidden_size=16, intermediate_size=24, num_attention_heads=4,
    num_key_value_heads=2, head_dim=4, rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=64,
    eagle_aux_hidden_state_layer_ids=(0, 1, 2),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_what_is_grown_is_what_branch_by_branch_is_found(seed: int) -> None:
    """Against every branch computed alone, from the beginning, with the same rules of who is followed and kept."""
    torch.manual_seed(seed)
    head = EagleHead(HEAD).eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    embedding, width, depth, count = torch.randn(24, 16), 3, 3, 8
    with torch.no_grad():
        outputs, past = head.extend(torch.randn(5, 16), torch.randn(5, 16), torch.arange(5), None)
        keys = past.keys.clone()

        def guesses(branch: tuple[int, ...]) -> list[tuple[int, float]]:
            state, memory = outputs[-1:], past
            for at, token in enumerate(branch):
                state, memory = head.extend(embedding[[token]], state, torch.tensor([5 + at]), memory)
            likely = torch.log_softmax(head.logits(state), -1).topk(width)
            return list(zip(head.target_ids(likely.indices)[0].tolist(), likely.values[0].tolist(), strict=True))

        pool: dict[tuple[int, ...], float] = {}
        frontier: list[tuple[int, ...]] = [()]
        for _ in range(depth):
            level = {
                (*branch, token): pool.get(branch, 0.0) + chance
                for branch in frontier
                for token, chance in guesses(branch)
            }
            pool |= level
            frontier = sorted(level, key=lambda branch: -level[branch])[:width]
        wanted = set(sorted(pool, key=lambda branch: -pool[branch])[:count])
        tree = grow(head, outputs[-1], past, 4, embedding, count, depth, width)
    found = {tuple(tree.ids[node] for node in line) for line in tree.ancestors()}
    assert found == wanted
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert torch.equal(past.keys, keys)
    smaller = tree.first(3)
    assert len(smaller.ids) == 3
    assert smaller.ancestors() == tree.ancestors()[:3]
