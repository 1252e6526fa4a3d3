"""Reads request traces: Mooncake's JSON lines and Azure's CSV, recognised by their first line, plain, .gz or .xz.

A malformed line raises an error that names the file, the line number and the fault.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, TextIO, cast

import msgspec

from contracts.errors import ConfigError
from tools.simulator.arrival import Arrival, block_id

TRACE_BLOCK_TOKENS = 512
"""Block size of Mooncake's hash ids, and the engines' cache granularity when a trace is replayed."""
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
AZURE_SPACE = 1


class MooncakeLine(msgspec.Struct, frozen=True):
    """One request. timestamp: ms. hash_ids: the prompt in blocks of 512 tokens, the last one partial."""

    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
    output_length: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)]
    hash_ids: tuple[Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)], ...]


def read_trace(path: Path) -> list[Arrival]:
    """Arrivals in order of time, the first at 0. Raises ConfigError for a file that is not a trace."""
    try:
        with _opened(path) as lines:
            numbered = ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())
            arrivals = list(_parse(str(path), numbered))
    except (OSError, UnicodeDecodeError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise ConfigError(f"trace {path}: cannot be read: {error}", param="trace") from error
    if not arrivals:
        raise ConfigError(f"trace {path}: holds no requests", param="trace")
    arrivals.sort(key=lambda arrival: arrival.at_s)
    start = arrivals[0].at_s
    return [msgspec.structs.replace(arrival, at_s=arrival.at_s - start) for arrival in arrivals]


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return io.TextIOWrapper(cast("BinaryIO", gzip.GzipFile(path)), encoding="utf-8")
    if path.suffix == ".xz":
        return io.TextIOWrapper(cast("BinaryIO", lzma.LZMAFile(path)), encoding="utf-8")
    return path.open(encoding="utf-8")


def _parse(path: str, lines: Iterator[tuple[int, str]]) -> Iterable[Arrival]:
    first = next(lines, None)
    if first is None:
        return ()
    _, text = first
    if text.startswith("{"):
        return _mooncake(path, first, lines)
    if text.lstrip("\ufeff").split(",")[0] == AZURE_COLUMNS[0]:
        return _azure(path, text.lstrip("\ufeff"), lines)
    raise _bad(path, 1, "neither Mooncake's JSON lines nor Azure's CSV with a header")


def _mooncake(path: str, first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[Arrival]:
    decoder = msgspec.json.Decoder(MooncakeLine)
    known: dict[int, bytes] = {}
    for number, text in _chained(first, rest):
        try:
            line = decoder.decode(text)
        except msgspec.DecodeError as error:
            raise _bad(path, number, str(error)) from error
        whole = line.input_length // TRACE_BLOCK_TOKENS
        if len(line.hash_ids) < whole:
            raise _bad(path, number, f"{line.input_length} tokens need at least {whole} hash_ids")
        blocks = tuple(known.setdefault(each, block_id(each)) for each in line.hash_ids[:whole])
        yield Arrival(line.timestamp / 1e3, line.input_length, max(line.output_length, 1), blocks)


def _azure(path: str, header: str, lines: Iterator[tuple[int, str]]) -> Iterator[Arrival]:
    columns = next(csv.reader([header]))
    missing = [name for name in AZURE_COLUMNS if name not in columns]
    if missing:
        raise _bad(path, 1, f"no column {', '.join(missing)}")
    at, prompt, answer = (columns.index(name) for name in AZURE_COLUMNS)
    fresh = 0
    for number, text in lines:
        row = next(csv.reader([text]))
        try:
            time = datetime.fromisoformat(row[at][:26])
            prompt_tokens, output_tokens = int(row[prompt]), int(row[answer])
        except (ValueError, IndexError) as error:
            raise _bad(path, number, str(error)) from error
        if prompt_tokens < 1 or output_tokens < 0:
            raise _bad(path, number, "token counts must be positive")
        # the trace has no prefixes: every prompt is new to every cache
        whole = prompt_tokens // TRACE_BLOCK_TOKENS
        blocks = tuple(block_id(fresh + each, AZURE_SPACE) for each in range(whole))
        fresh += whole
        yield Arrival(time.timestamp(), prompt_tokens, max(output_tokens, 1), blocks)


def _chained(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from rest


def _bad(path: str, number: int, what: str) -> ConfigError:
    return ConfigError(f"trace {path}, line {number}: {what}", param="trace")
