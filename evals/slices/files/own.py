"""Questions of one's own: `own/NAME.jsonl`, each line a conversation and how to tell a right answer.

    {"messages": [{"role": "user", "content": "2 + 2?"}], "check": {"kind": "numeric", "answer": 4}, "cluster": "sums"}

docs/guides/add-a-slice.md has all fields. Every line is checked before the first is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from evals.sandbox.sandbox import Sandbox
from evals.slices.files.error import SliceFileError
from evals.slices.files.file_slice import FileSlice, Kind
from evals.slices.files.own_checks import AnyCheck, WrongCheck
from evals.slices.files.rows import content, json_lines
from evals.slices.item import Message, Question
from evals.slices.version import version

MOST_LINES = 100_000
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: Annotated[str, msgspec.Meta(min_length=1)]


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1, max_length=1000)]
    check: AnyCheck
    cluster: Annotated[str, msgspec.Meta(max_length=200)] = ""
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=32_768)] = 256
    reference: str = ""


def read(path: Path, sandbox: Sandbox) -> Sequence[FileSlice]:
    """The file as one slice of its name."""
    name = path.stem
    if not _NAME.fullmatch(name):
        raise SliceFileError(
            path,
            0,
            "",
            "a slice is named after its file: up to 63 of a-z, 0-9, `-` and `.`, beginning with a letter or a digit",
        )
    questions = []
    for line, row in json_lines(path, _Row):
        if line > MOST_LINES:
            raise SliceFileError(path, line, "", f"is past the last of {MOST_LINES} lines; split the file")
        questions.append(_question(path, line, row, sandbox))
    return [FileSlice(name, "questions of one's own", tuple(questions), version(__name__, content(path)))]


def _question(path: Path, line: int, row: _Row, sandbox: Sandbox) -> Question:
    if row.messages[-1].role != "user":
        raise SliceFileError(path, line, f"messages[{len(row.messages) - 1}].role", "the last must be of the user")
    try:
        check = row.check.compile(sandbox)
    except WrongCheck as error:
        raise SliceFileError(path, line, f"check.{error.field}".rstrip("."), str(error)) from error
    if row.reference and not check(row.reference):
        raise SliceFileError(path, line, "reference", "does not pass its own check")
    return Question(
        messages=tuple(Message(role=one.role, content=one.content) for one in row.messages),
        reference=row.reference,
        check=check,
        max_tokens=row.max_tokens,
        cluster=row.cluster or f"{path.stem}/{line}",
    )


KIND = Kind("own", ("own/*.jsonl",), read)
