"""Lines of a file, checked one by one: what does not fit is named by file, line and field."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from evals.slices.files.error import SliceFileError

RowT = TypeVar("RowT")
MOST_BYTES = 256 << 20
"""Of a file, unpacked."""
_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?P<field>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<field>[^`]+)`")


def content(path: Path) -> bytes:
    """The bytes of a file, those of a `.gz` unpacked. Raises SliceFileError."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as packed:
                found = packed.read(MOST_BYTES + 1)
        else:
            with path.open("rb") as plain:
                found = plain.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SliceFileError(path, 0, "", f"cannot be read: {error}") from error
    if len(found) > MOST_BYTES:
        raise SliceFileError(path, 0, "", f"is longer than {MOST_BYTES >> 20} MiB; split it")
    return found


def text(path: Path) -> str:
    """The file as UTF-8. Raises SliceFileError."""
    try:
        return content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SliceFileError(path, 0, "", f"is not UTF-8: {error}") from error


def json_lines(path: Path, row: type[RowT]) -> Iterator[tuple[int, RowT]]:
    """Each line that is not empty, by its number from 1. Raises SliceFileError at the first that is no `row`."""
    decoder = msgspec.json.Decoder(row)
    found = False
    for number, line in enumerate(content(path).split(b"\n"), 1):
        if not line.strip():
            continue
        found = True
        try:
            yield number, decoder.decode(line)
        except msgspec.ValidationError as error:
            field, what = _where(str(error))
            raise SliceFileError(path, number, field, what) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SliceFileError(path, number, "", f"is no JSON: {error}") from error
    if not found:
        raise SliceFileError(path, 0, "", "holds no question")


def table(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file whose first line names its columns, by the line each begins at. Raises SliceFileError."""
    reader = csv.reader(io.StringIO(text(path), newline=""), strict=True)
    begins = 1
    names: list[str] = []
    try:
        for row in reader:
            number, begins = begins, reader.line_num + 1
            if not names:
                names = [name.strip() for name in row]
                for column in columns:
                    if column not in names:
                        raise SliceFileError(path, number, column, f"no such column; there are {', '.join(names)}")
            elif row:
                if len(row) != len(names):
                    raise SliceFileError(path, number, "", f"has {len(row)} columns, not {len(names)}")
                yield number, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise SliceFileError(path, begins, "", f"is no CSV: {error}") from error


def _where(said: str) -> tuple[str, str]:
    found = _PLACE.match(said)
    assert found is not None
    field = (found["field"] or "").removeprefix("$").removeprefix(".")
    missing = _MISSING.search(found["what"])
    if missing:
        field = f"{field}.{missing['field']}" if field else missing["field"]
    return field, found["what"][:1].lower() + found["what"][1:]
