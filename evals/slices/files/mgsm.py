"""MGSM (Shi et al. 2022): 250 problems of GSM8K in eleven languages. `mgsm_xx.tsv` of google-research/url-nlp.

Each line has the question, a tab, and the number. A slice for each language. The same place is the same problem in
every language, and is its cluster. Digits of any script count; "70.000" may be seventy thousand.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from evals.sandbox.sandbox import Sandbox
from evals.slices.files.error import SliceFileError
from evals.slices.files.file_slice import FileSlice, Kind
from evals.slices.files.gsm8k import ASK, MAX_TOKENS
from evals.slices.files.rows import content, text
from evals.slices.item import Question, user
from evals.slices.numbers import ends_with, parse
from evals.slices.version import version


def read(path: Path, _: Sandbox) -> Sequence[FileSlice]:
    """The slice of one language."""
    language = path.stem.removeprefix("mgsm_")
    questions = []
    for line, row in enumerate(text(path).split("\n"), 1):
        if not row.strip():
            continue
        asked, tab, number = row.rstrip("\r").rpartition("\t")
        if not tab or not asked.strip():
            raise SliceFileError(path, line, "", "must be a question, a tab and a number")
        wanted = parse(number)
        if wanted is None:
            raise SliceFileError(path, line, "answer", f"{number.strip()!r} is no number")
        questions.append(
            Question(
                messages=(user(ASK.format(asked)),),
                reference=number.strip(),
                check=functools.partial(_is_right, wanted),
                max_tokens=MAX_TOKENS,
                cluster=f"mgsm/{line}",
            )
        )
    if not questions:
        raise SliceFileError(path, 0, "", "holds no question")
    return [
        FileSlice(
            f"mgsm-{language}", f"word problems in {language}", tuple(questions), version(__name__, content(path))
        )
    ]


def _is_right(wanted: Decimal, answer: str) -> bool:
    return ends_with(answer, wanted, dots_group=True)


KIND = Kind("mgsm", ("mgsm_*.tsv", "mgsm/mgsm_*.tsv"), read)
