"""All slices: the generators, edits of code, long texts if a tokenizer is given, and the slices of a folder."""

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
"""File formats. A new one is a file in `files/` and a name here."""
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
        """folder: holds files of questions, each of which is read once, here. sandbox: runs all code of models; by
        default with namespaces. tokenizer, lengths: for long texts.

        Raises SliceFileError for a malformed file or one of an unknown format; IsolationUnavailable if a file needs
        code to run and this machine cannot isolate it.
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
        """Names of all slices, generators first."""
        return tuple(self._slices)

    def names_for(self, tier: Tier) -> tuple[str, ...]:
        """Names of the slices for models of a tier, in the same order."""
        return tuple(name for name, one in self._slices.items() if one.fills_gaps == (tier is Tier.AUTOCOMPLETE))

    def find(self, name: str) -> Source:
        """The slice of a name. Raises KeyError, naming those that exist."""
        try:
            return self._slices[name]
        except KeyError:
            raise KeyError(f"{name}: no such slice; there are {', '.join(self._slices)}") from None

    def to_score(self, name: str) -> Source:
        """The slice of a name, to score answers with. Raises KeyError, naming those that exist, and
        IsolationUnavailable if answers are code that this machine cannot isolate."""
        found = self.find(name)
        if name in self._code:
            self._sandbox.require()
        return found

    def left_out(self) -> dict[str, tuple[str, ...]]:
        """Questions of files that are not asked, by slice: how many and why."""
        return {name: one.left_out for name, one in self._slices.items() if isinstance(one, FileSlice) and one.left_out}


def files(folder: Path) -> Iterator[tuple[Path, Kind]]:
    """The files of questions in a folder with their formats. Raises SliceFileError for a file of an unknown format."""
    if not folder.is_dir():
        raise SliceFileError(folder, 0, "", "is no folder")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        relative = path.relative_to(folder).as_posix()
        if not any(fnmatchcase(path.name, pattern) for pattern in _QUESTIONS):
            continue
        kind = next((kind for kind in KINDS if any(fnmatchcase(relative, one) for one in kind.patterns)), None)
        if kind is None:
            known = "; ".join(f"{kind.name}: {', '.join(kind.patterns)}" for kind in KINDS)
            raise SliceFileError(path, 0, "", f"nothing reads a file of this name. Known are {known}")
        yield path, kind
