"""Decides by hash alone which side of the split a word, a number or a phrase belongs to."""

from __future__ import annotations

import enum
import hashlib

HELD_OUT_SHARE = 8
"""One value in this many is held out."""

RESERVED_FROM_SEED = 1_000_000
"""Held-out items from this seed on are used only for final figures: their wrong answers are not read, and no choice
depends on them. Earlier items have served as a development set. Nights use seeds far above both
(control/evals/store.py)."""

_EDITION = "slipstream-slices-1"


class Split(enum.StrEnum):
    """The side that the parts of an item come from."""

    TRAIN = "train"
    HELD_OUT = "held-out"


def side(kind: str, *parts: str) -> Split:
    """The side of a value, which never changes. kind: the kind of value, such as "word"."""
    text = "\x1f".join((_EDITION, kind, *parts)).encode()
    value = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return Split.HELD_OUT if value % HELD_OUT_SHARE == 0 else Split.TRAIN
