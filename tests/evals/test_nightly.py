"""A night's questions are no other night's, and none that training could draw."""

from __future__ import annotations

import ast
import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.slices import nightly
from evals.slices.catalogue import Catalogue
from evals.slices.item import Slice
from evals.slices.registry import SLICES, find
from evals.slices.split import RESERVED_FROM_SEED, Split, side
from tests.evals import published

ROOT = Path(__file__).parents[2]
NIGHTS = st.dates(nightly.FIRST_NIGHT, nightly.FIRST_NIGHT + datetime.timedelta(days=5000))
SHORT = [one for one in SLICES if not one.name.startswith("retrieval")]
DAY = datetime.timedelta(days=1)


@given(first=NIGHTS, second=NIGHTS, items=st.integers(1, nightly.MOST_ITEMS), more=st.integers(1, nightly.MOST_ITEMS))
def test_two_nights_share_no_seed(first: datetime.date, second: datetime.date, items: int, more: int) -> None:
    one, other = nightly.seeds(find("json"), first, items), nightly.seeds(find("json"), second, more)
    assert len(one) == items
    shared = range(max(one[0], other[0]), min(one[-1], other[-1]) + 1)
    assert bool(shared) == (first == second)


def test_a_year_of_nights_has_as_many_seeds_as_items_and_no_known_ones() -> None:
    seen: set[int] = set()
    for day in range(366):
        seen.update(nightly.seeds(find("json"), nightly.FIRST_NIGHT + day * DAY, 300))
    assert len(seen) == 366 * 300
    assert min(seen) >= nightly.FIRST_SEED > 100 * RESERVED_FROM_SEED


def test_a_night_is_the_same_whenever_it_is_asked() -> None:
    night = datetime.date(2026, 11, 22)
    assert list(nightly.seeds(find("facts"), night, 3)) == [1_032_500_000, 1_032_500_001, 1_032_500_002]


def test_a_file_is_gone_through_before_it_begins_again(tmp_path: Path) -> None:
    rows = [dict(published.GSM8K[0]) for _ in range(10)]
    (tmp_path / "gsm8k.jsonl").write_text(published.lines(rows))
    one = Catalogue(tmp_path).find("gsm8k")
    nights = [nightly.seeds(one, nightly.FIRST_NIGHT + day * DAY, 5) for day in range(4)]
    assert sorted([*nights[0], *nights[1]]) == list(range(10))
    assert (nights[2], nights[3]) == (nights[0], nights[1])
    assert sorted(nightly.seeds(one, nightly.FIRST_NIGHT, 99)) == list(range(10)), "at most all"
    assert nights[0] != list(range(5)), "shuffled"


@pytest.mark.parametrize(
    ("night", "items"),
    [(nightly.FIRST_NIGHT - DAY, 1), (nightly.FIRST_NIGHT, 0), (nightly.FIRST_NIGHT, 100_001)],
)
def test_no_such_night(night: datetime.date, items: int) -> None:
    with pytest.raises(ValueError, match="night"):
        nightly.seeds(find("facts"), night, items)


@settings(max_examples=60, deadline=None)
@given(chosen=st.sampled_from(SHORT), night=NIGHTS, seed=st.integers(0, 2**62))
def test_training_cannot_draw_a_nights_item(chosen: Slice, night: datetime.date, seed: int) -> None:
    """Whatever seed training takes: every item rests on a phrase of its side, and no phrase is of both."""
    asked = chosen.item(nightly.seeds(chosen, night, 1)[0])
    phrases = {mark for mark in asked.marks if mark[0].startswith("phrase:")}
    assert phrases
    assert {side(*mark) for mark in asked.marks} == {Split.HELD_OUT}
    for for_training in (False, True):
        trained = chosen.item(seed, Split.TRAIN, for_training=for_training)
        assert not phrases & set(trained.marks)
        assert trained.messages != asked.messages


def test_training_asks_for_the_training_side_only() -> None:
    """Read from its text: every call of `item` names Split.TRAIN, but where models are measured."""
    measuring = {"chat_curve.py", "drafts_command.py"}
    calls = 0
    for path in sorted((ROOT / "training").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and isinstance(called, ast.Attribute) and called.attr == "item" and node.args:
                calls += 1
                split = ast.unparse(node.args[1]) if len(node.args) > 1 else "held-out by default"
                assert split == "Split.TRAIN" or path.name in measuring, f"{path.name}:{node.lineno}: {split}"
        assert "nightly" not in text
        assert "slices.catalogue" not in text, f"{path.name}: files are never trained on"
    assert calls >= 4
