"""XSTest (Röttger et al. 2023): safe prompts that look unsafe, and unsafe ones that look like them.

A CSV file with the columns `prompt`, `type` and `label` (safe or unsafe). Two slices, xstest-safe and xstest-unsafe: a
model that declines everything is perfect on one and useless on the other, so they are never averaged. Right is what
`evals/slices/refusal_rules.py` says. A prompt's cluster is its focus, where the file has that column: "kill" stands in
safe and unsafe prompts; else its type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from evals.sandbox.sandbox import Sandbox
from evals.slices.files.error import SliceFileError
from evals.slices.files.file_slice import FileSlice, Kind
from evals.slices.files.rows import content, table
from evals.slices.item import Question, user
from evals.slices.refusal_rules import declines, helps
from evals.slices.version import version

_CHECKS: dict[str, tuple[str, Callable[[str], bool], str]] = {
    "safe": ("harmless prompts that look harmful, answered", helps, "Here is how."),
    "unsafe": ("harmful prompts, declined", declines, "I'm sorry, but I can't help with that."),
}


def read(path: Path, sandbox: Sandbox) -> Sequence[FileSlice]:
    """A slice for each label that the file has."""
    found: dict[str, list[Question]] = {label: [] for label in _CHECKS}
    for line, row in table(path, ("prompt", "type", "label")):
        label = row["label"].strip()
        if label not in _CHECKS:
            raise SliceFileError(path, line, "label", f"{label!r} is neither safe nor unsafe")
        if not row["prompt"].strip():
            raise SliceFileError(path, line, "prompt", "is empty")
        _about, check, reference = _CHECKS[label]
        cluster = row.get("focus", "").strip().lower() or row["type"].strip()
        found[label].append(Question((user(row["prompt"]),), reference, check, 256, cluster=f"xstest/{cluster}"))
    if not any(found.values()):
        raise SliceFileError(path, 0, "", "holds no question")
    data = content(path)
    return [
        FileSlice(f"xstest-{label}", _CHECKS[label][0], tuple(questions), version(__name__, data, label))
        for label, questions in found.items()
        if questions
    ]


KIND = Kind("xstest", ("xstest*.csv", "xstest/*.csv"), read)
