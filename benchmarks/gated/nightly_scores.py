"""Scores that nights are made of: the shipped chat model's answers, sound, drawn and broken, computed once and kept.

Greedy answers of the embedded engine depend on the items alone, so a night of a sound or a broken model is a choice
among them. Drawn answers, at a temperature and with several seeds, simulate engines whose answers differ from night to
night.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.gated.real import MODEL, TEMPERATURE
from evals.slices.registry import find
from evals.slices.split import Split
from tools.quantization.asking import Asked
from tools.quantization.defects import SOUND, Defect

FIRST_SEED = 30_000_000
"""The first item: no choice was made by the items from here on."""

Scores = dict[str, list[tuple[str, float]]]
"""By slice: cluster and score of each item, in order."""


class Asking(msgspec.Struct, frozen=True):
    """The questions of a run. items: the number of each slice. drawn: the number of samples of each item that the sound
    model draws at a temperature."""

    slices: tuple[str, ...]
    items: int
    drawn: int


class Kept(msgspec.Struct):
    """The scores of all answers. drawn: by sample, for the same items. broken: by the defect's name."""

    asking: Asking
    sound: Scores = {}
    drawn: list[Scores] = []
    broken: dict[str, Scores] = {}


def scores(asking: Asking, defects: Sequence[Defect], file: Path | None, say: Callable[[str], None]) -> Kept:
    """Ask what is missing. file: keeps the scores between runs; None keeps none. say: prints progress.

    A file with the scores of other items is replaced.
    """
    kept = _read(file, asking)
    for what, fill in _missing(kept, defects):
        say(f"asking {what}: {asking.items} items of each of {len(asking.slices)} slices")
        fill()
        if file is not None:
            draft = file.with_suffix(".draft")
            draft.write_bytes(msgspec.json.encode(kept))
            draft.replace(file)
    return kept


def _read(file: Path | None, asking: Asking) -> Kept:
    if file is not None and file.exists():
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
        if kept.asking == asking:
            return kept
    return Kept(asking)


def _missing(kept: Kept, defects: Sequence[Defect]) -> Iterator[tuple[str, Callable[[], None]]]:
    asking = kept.asking

    def sound() -> None:
        kept.sound = _asked(Asked(MODEL, SOUND), asking)

    def drawn(seed: int) -> Callable[[], None]:
        return lambda: kept.drawn.append(_asked(Asked(MODEL, SOUND), asking, TEMPERATURE, seed))

    def broken(defect: Defect) -> Callable[[], None]:
        def fill() -> None:
            kept.broken[defect.name] = _asked(Asked(MODEL, defect), asking)

        return fill

    if not kept.sound:
        yield "the model as it ships", sound
    for defect in defects:
        if defect.name not in kept.broken:
            yield f"with the defect {defect.name}", broken(defect)
    for seed in range(len(kept.drawn), asking.drawn):
        yield f"the model at temperature {TEMPERATURE:g}, seed {seed}", drawn(seed)


def _asked(model: Asked, asking: Asking, temperature: float = 0.0, seed: int = 0) -> Scores:
    found: Scores = {}
    for name in asking.slices:
        items = [find(name).item(FIRST_SEED + number, Split.HELD_OUT) for number in range(asking.items)]
        answers = model.answers(items, temperature=temperature, seed=seed)
        found[name] = [(item.cluster, item.score(answer)) for item, answer in zip(items, answers, strict=True)]
    return found


def clusters(found: Mapping[str, Sequence[tuple[str, float]]]) -> dict[str, int]:
    """The number of clusters, by slice."""
    return {name: len({cluster for cluster, _ in items}) for name, items in found.items()}
