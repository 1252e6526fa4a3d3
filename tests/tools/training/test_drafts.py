"""What the acceptance lengths are measured on, and how they are told."""

from __future__ import annotations

from pathlib import Path

from evals.slices.registry import SLICES
from tools.training.acceptance import Acceptance
from tools.training.chat_source import ASSISTANT, BEGIN
from tools.training.drafts_command import LONGEST_QUESTION, questions, table


def test_every_slice_that_is_short_enough_is_asked() -> None:
    asked = questions(Path("models/slipstream-chat"), 2)
    assert len(asked) > len(SLICES)
    assert all(ids[0] == BEGIN and ids[-1] == ASSISTANT and len(ids) < LONGEST_QUESTION for ids in asked)
    assert len({tuple(ids) for ids in asked}) > 0.9 * len(asked)


def test_the_table_has_a_row_a_source() -> None:
    rows = [
        Acceptance(source, temperature, per_check, per_check - 0.5, 10, 20)
        for temperature, per_check in ((0.0, 2.0), (1.0, 1.5))
        for source in ("n-gram", "EAGLE")
    ]
    assert table(rows, 7).splitlines() == [
        "| 7 prompts: tokens per check / per step | greedy | temperature 1 |",
        "|---|---|---|",
        "| EAGLE | 2.00 / 1.50 | 1.50 / 1.00 |",
        "| n-gram | 2.00 / 1.50 | 1.50 / 1.00 |",
    ]
