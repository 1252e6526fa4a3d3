"""All slices there are to ask: the generators, edits of code, long texts where a tokenizer is given, and those of a
folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from contracts.generation import Tier
from evals.sandbox.sandbox import Sandbox
from evals.slices import code_tests, ruler
from evals.slices.code_edits import EDIT_SLICES, EditSlice
from evals.slices.confined import confined, is_code
from evals.slices.files import gsm8k, humaneval_plus, ifeval, mgsm, own, xstest
from evals.slices.files.error import SliceFileError
from evals.slices.files.file_slice import FileSlice, Kind
from evals.slices.item import Slice, Source
from evals.slices.registry import SLICES

KINDS: tuple[Kind, ...] = (gsm8k.KIND, humaneval_plus.KIND, ifeval.KIND, mgsm.KIND, xstest.KIND, own.KIND)
"""Formats of files. Another is a file in `files/` and a name here."""
_QUESTIONS = ("*.jsonl", "*.jsonl.gz", "*.csv", "*.tsv")


class Catalogue:
    """Slices by name."""

    def __init__(
        self,
        folder: Path | None = None,
        sandbox: Sandbox | None = None,
        tokenizer: ruler.TokenCounter | None = None,
        lengths: Sequence[int] = (),
    ) -> None:
        """folder: of files of questions, each read once, here. sandbox: in which all code of models is run; one of
        namespaces if not given. tokenizer, lengths: of long texts.

        Raises SliceFileError for a file that is not what it should be, or that nothing reads; IsolationUnavailable
        where one holds code that may not be run on this machine.
        """
        self._sandbox = sandbox or Sandbox()
        self._code = frozenset((*(one.name for one in SLICES if is_code(one)), code_tests.NAME))
        found: dict[str, Slice | EditSlice | FileSlice] = {
            one.name: confined(one, self._sandbox) if one.name in self._code else one for one in SLICES
        }
        found |= {one.name: one for one in (*EDIT_SLICES, code_tests.slice_in(self._sandbox))}
        if tokenizer is not None:
            found |= {one.name: one for one in ruler.slices(tokenizer, lengths)}
        if folder is not None:
            for path, kind in files(folder):
                for one in kind.read(path, self._sandbox):
                    if one.name in found:
                        raise SliceFileError(path, 0, "", f"there is a slice {one.name} already; rename or remove it")
                    found[one.name] = one
        self._slices = found

    @property
    def names(self) -> tuple[str, ...]:
        """Of all slices, generators first."""
        return tuple(self._slices)

    def names_for(self, tier: Tier) -> tuple[str, ...]:
        """Of the slices that models of a tier can be asked, in the same order."""
        return tuple(name for name, one in self._slices.items() if one.fills_gaps == (tier is Tier.AUTOCOMPLETE))

    def find(self, name: str) -> Source:
        """The slice of a name. Raises KeyError, naming those that exist."""
        try:
            return self._slices[name]
        except KeyError:
            raise KeyError(f"{name}: no such slice; there are {', '.join(self._slices)}") from None

    def to_score(self, name: str) -> Source:
        """The slice of a name, by whoever scores answers. Raises KeyError, naming those that exist, and
        IsolationUnavailable where answers are code that may not be run on this machine."""
        found = self.find(name)
        if name in self._code:
            self._sandbox.require()
        return found

    def left_out(self) -> dict[str, tuple[str, ...]]:
        """Questions that files hold and nobody asks, by slice: how many and why."""
        return {name: one.left_out for name, one in self._slices.items() if isinstance(one, FileSlice) and one.left_out}


def files(folder: Path) -> Iterator[tuple[Path, Kind]]:
    """The files of questions in a folder, and what each is. Raises SliceFileError for one that nothing reads."""
    if not folder.is_dir():
        raise SliceFileError(folder, 0, "", "is no folder")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = path.relative_to(folder).as_posix()
        if not any(fnmatchcase(path.name, pattern) for pattern in _QUESTIONS):
            continue
        kind = next((kind for kind in KINDS if any(fnmatchcase(place, one) for one in kind.patterns)), None)
        if kind is None:
            known = "; ".join(f"{kind.name}: {', '.join(kind.patterns)}" for kind in KINDS)
            raise SliceFileError(path, 0, "", f"nothing reads a file of this name. Known are {known}")
        yield path, kind
