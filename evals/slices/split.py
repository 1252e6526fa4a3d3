"""Which side of the split a word, a number or a phrase belongs to, decided by hash and by nothing else."""

from __future__ import annotations

import enum
import hashlib

HELD_OUT_SHARE = 8
"""One value in this many is held out."""

RESERVED_FROM_SEED = 1_000_000
"""Held-out items of this seed and later ones are asked for final figures only: their wrong answers are not read, and
nothing is chosen by them. Those before have served as a development set. Nights ask seeds far behind both
(control/evals/store.py)."""

_EDITION = "slipstream-slices-1"


class Split(enum.StrEnum):
    """What an item may be made of."""

    TRAIN = "train"
    HELD_OUT = "held-out"


def side(kind: str, *parts: str) -> Split:
    """The side a value belongs to, the same in every process and for ever. kind: what the value is, as "word"."""
    text = "\x1f".join((_EDITION, kind, *parts)).encode()
    value = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return Split.HELD_OUT if value % HELD_OUT_SHARE == 0 else Split.TRAIN
