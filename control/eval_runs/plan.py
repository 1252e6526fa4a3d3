"""Plans the items that a run still has to ask. Pure: an interrupted run is planned again from the stored answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import zip_longest

from evals.slices.item import Source


def seeds_of(source: Source, first_seed: int, items: int) -> list[int]:
    """The seeds of a run's items; the seeds of more items begin with those of fewer. A finite slice is shuffled by the
    first seed, so that another night asks others, each at most once."""
    if source.size is None:
        return list(range(first_seed, first_seed + items))
    seeds = list(range(source.size))
    random.Random(f"{source.name}/{source.version}/{first_seed}").shuffle(seeds)  # noqa: S311  (repeatable)
    return seeds[:items]


def missing(
    sources: Sequence[Source], first_seed: int, planned: Mapping[str, int], answered: Mapping[str, Set[int]]
) -> Iterator[tuple[Source, int]]:
    """Items without an answer, in turn from each slice, so that a run that ends early has answers of each."""
    open_seeds = [
        [(source, seed) for seed in seeds_of(source, first_seed, planned[source.name]) if seed not in done]
        for source in sources
        for done in (answered.get(source.name, frozenset()),)
    ]
    for turn in zip_longest(*open_seeds):
        yield from (each for each in turn if each is not None)
