"""IFEval (Zhou et al. 2023): prompts with instructions a program can check. `input_data.jsonl` of google-research.

Each line has `key`, `prompt`, `instruction_id_list` and `kwargs`, one object an instruction. An answer is right when it
follows every instruction as it stands (the paper's strict prompt-level accuracy), and says something.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from evals.sandbox.sandbox import Sandbox
from evals.slices.files.error import SliceFileError
from evals.slices.files.file_slice import FileSlice, Kind
from evals.slices.files.ifeval_checks import INSTRUCTIONS, LEFT_OUT, Check, WrongArguments, check_of
from evals.slices.files.rows import content, json_lines
from evals.slices.item import Question, user
from evals.slices.version import version

MAX_TOKENS = 1280


class _Row(msgspec.Struct):
    key: int
    prompt: str
    instruction_id_list: list[str]
    kwargs: list[dict[str, Any]]


def read(path: Path, _: Sandbox) -> Sequence[FileSlice]:
    """The file as one slice, less what cannot be checked, which it names."""
    questions = []
    left_out: collections.Counter[str] = collections.Counter()
    for line, row in json_lines(path, _Row):
        checks = _checks(path, line, row)
        missing = LEFT_OUT.intersection(row.instruction_id_list)
        if missing:
            left_out.update(missing)
            continue
        questions.append(
            Question(
                messages=(user(row.prompt),),
                reference="",
                check=functools.partial(follows, checks),
                max_tokens=MAX_TOKENS,
                cluster=f"ifeval/{row.key}",
            )
        )
    if not questions:
        raise SliceFileError(path, 0, "", "holds no question that can be checked here")
    said = tuple(f"{count} with {name}, which needs a language detector" for name, count in sorted(left_out.items()))
    return [
        FileSlice(
            "ifeval", "instructions about form, all followed", tuple(questions), version(__name__, content(path)),
            left_out=said,
        )
    ]  # fmt: skip


def follows(checks: Sequence[Check], answer: str) -> bool:
    """Whether an answer says something and follows all instructions."""
    return bool(answer.strip()) and all(check(answer) for check in checks)


def _checks(path: Path, line: int, row: _Row) -> tuple[Check, ...]:
    if len(row.kwargs) != len(row.instruction_id_list) or not row.kwargs:
        raise SliceFileError(path, line, "kwargs", "must hold one object for each of instruction_id_list")
    checks = []
    for place, (name, given) in enumerate(zip(row.instruction_id_list, row.kwargs, strict=True)):
        if name in LEFT_OUT:
            continue
        try:
            checks.append(check_of(name, given))
        except KeyError as error:
            known = ", ".join(INSTRUCTIONS)
            field = f"instruction_id_list[{place}]"
            raise SliceFileError(path, line, field, f"{name!r} is unknown; known are {known}") from error
        except WrongArguments as error:
            field = f"kwargs[{place}].{error.name}"
            raise SliceFileError(path, line, field, f"{error}, for {name}") from error
    return tuple(checks)


KIND = Kind("ifeval", ("ifeval/input_data.jsonl", "ifeval.jsonl"), read)
