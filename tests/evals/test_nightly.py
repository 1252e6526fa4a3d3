"""A night's questions are no other night's, and none that training could draw."""

from __future__ import annotations

import ast
import datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from control.eval_runs.plan import seeds_of
from control.evals.store import rotating_seed
from control.slices.bounds import MAX_ITEMS
from evals.slices.catalogue import Catalogue
from evals.slices.item import Slice, Source
from evals.slices.registry import SLICES, find
from evals.slices.split import Split, side
from tests.evals import published
from tests.examples import examples

ROOT = Path(__file__).parents[2]
NIGHTS = st.dates(datetime.date(2026, 1, 1), datetime.date(2060, 1, 1))
SHORT = [one for one in SLICES if not one.name.startswith("retrieval")]
DAY = datetime.timedelta(days=1)


def night_of(source: Source, night: datetime.date, items: int) -> list[int]:
    return seeds_of(source, rotating_seed(night), items)


@given(first=NIGHTS, second=NIGHTS, items=st.integers(1, 500), more=st.integers(MAX_ITEMS - 500, MAX_ITEMS))
@examples(nightly=150)
def test_two_nights_share_no_seed(first: datetime.date, second: datetime.date, items: int, more: int) -> None:
    one, other = night_of(find("json"), first, items), night_of(find("json"), second, more)
    assert (one[0], len(one), len(set(one))) == (min(one), items, items)
    assert bool(set(one) & set(other)) == (first == second)


def test_a_file_is_asked_in_another_order_every_night(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.jsonl").write_text(published.lines([dict(published.GSM8K[0]) for _ in range(250)]))
    one = Catalogue(tmp_path).find("gsm8k")
    nights = [night_of(one, datetime.date(2026, 1, 1) + day * DAY, 20) for day in range(30)]
    assert len({tuple(night) for night in nights}) == 30
    assert len({place for night in nights for place in night}) > 200, "a month asks most of it"
    tonight = datetime.date(2026, 11, 22)
    assert night_of(one, tonight, 20) == night_of(one, tonight, 60)[:20], "more items begin with those asked before"
    assert sorted(night_of(one, tonight, 999)) == list(range(250)), "each once at most"


@examples(nightly=300)
@given(chosen=st.sampled_from(SHORT), night=NIGHTS, seed=st.integers(0, 2**62))
def test_training_cannot_draw_a_nights_item(chosen: Slice, night: datetime.date, seed: int) -> None:
    """Whatever seed training takes: every item rests on a phrase of its side, and no phrase is of both."""
    asked = chosen.item(night_of(chosen, night, 1)[0])
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
    for path in sorted((ROOT / "tools/training").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and isinstance(called, ast.Attribute) and called.attr == "item" and node.args:
                calls += 1
                split = ast.unparse(node.args[1]) if len(node.args) > 1 else "held-out by default"
                assert split == "Split.TRAIN" or path.name in measuring, f"{path.name}:{node.lineno}: {split}"
        assert "slices.catalogue" not in text, f"{path.name}: files are never trained on"
    assert calls >= 4
