"""Which questions a night asks: other ones every night, none that training could have seen.

A night's seeds of a generator are a range of their own, for every date, for ever: two nights share none, nor does any
share one with the development set or with the items of final figures (`split.py`). Training cannot draw a night's item,
whatever its seed: nights ask the held-out side of the split and training draws from the other (a test reads both).
Seeds differ, and so do the questions as far as a slice has that many: `facts` has a few hundred held out.

A file ends. Its nights go through a fixed shuffle of it, and begin again when all has been asked.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence

from evals.slices.item import Source

FIRST_NIGHT = datetime.date(2026, 1, 1)
FIRST_SEED = 1_000_000_000
MOST_ITEMS = 100_000
"""Of a slice, in a night."""


def seeds(source: Source, night: datetime.date, items: int) -> Sequence[int]:
    """The seeds of a slice for a night, in the order to ask them; of a file at most as many as it has.

    Raises ValueError for a night before the first, or more items than a night may have.
    """
    number = (night - FIRST_NIGHT).days
    if number < 0:
        raise ValueError(f"nights begin with {FIRST_NIGHT}, not {night}")
    if not 1 <= items <= MOST_ITEMS:
        raise ValueError(f"a night asks 1 to {MOST_ITEMS} items of a slice, not {items}")
    if source.size is None:
        first = FIRST_SEED + number * MOST_ITEMS
        return range(first, first + items)
    items = min(items, source.size)
    order = random.Random(f"{source.name}/{source.version}")
    places = list(range(source.size))
    order.shuffle(places)
    return [places[(number * items + place) % source.size] for place in range(items)]
