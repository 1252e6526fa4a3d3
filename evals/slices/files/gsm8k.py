"""GSM8K (Cobbe et al. 2021): word problems of grade school. `test.jsonl` of openai/grade-school-math.

Each line has `question` and `answer`, which ends with `#### ` and the number. An answer is right when its last number
is that number; thousands may be grouped by commas.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import msgspec

from evals.sandbox.sandbox import Sandbox
from evals.slices.files.error import SliceFileError
from evals.slices.files.file_slice import FileSlice, Kind
from evals.slices.files.rows import content, json_lines
from evals.slices.item import Question, user
from evals.slices.numbers import ends_with, parse
from evals.slices.version import version

ASK = "{}\n\nThink step by step. The last line of your answer is the number alone."
MAX_TOKENS = 512
_GOLD = re.compile(r"####\s*(\S+)\s*$")


class _Row(msgspec.Struct):
    question: str
    answer: str


def read(path: Path, _: Sandbox) -> Sequence[FileSlice]:
    """The whole file as one slice."""
    questions = []
    for line, row in json_lines(path, _Row):
        found = _GOLD.search(row.answer)
        wanted = parse(found[1]) if found else None
        if found is None or wanted is None:
            raise SliceFileError(path, line, "answer", "must end with `#### ` and a number")
        questions.append(
            Question(
                messages=(user(ASK.format(row.question)),),
                reference=found[1],
                check=functools.partial(_is_right, wanted),
                max_tokens=MAX_TOKENS,
                cluster=f"gsm8k/{line}",
            )
        )
    return [FileSlice("gsm8k", "word problems", tuple(questions), version(__name__, content(path)))]


def _is_right(wanted: Decimal, answer: str) -> bool:
    return ends_with(answer, wanted)


KIND = Kind("gsm8k", ("gsm8k/test.jsonl", "gsm8k.jsonl"), read)
