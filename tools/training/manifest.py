"""The list of files that weights were made from: name, part, bytes, licence, SHA-256; one line each, gzipped."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from contracts.errors import ConfigError
from tools.training.code_files import CodeFile


def write(files: Sequence[CodeFile], path: Path) -> None:
    """Write a manifest; equal files give equal bytes."""
    lines = [f"{file.name}\t{file.part}\t{file.bytes}\t{file.licence}\t{file.sha256}\n" for file in files]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def read(path: Path) -> list[CodeFile]:
    """Read what `write` wrote. Raises ConfigError, naming an invalid line."""
    files = []
    for number, line in enumerate(gzip.decompress(path.read_bytes()).decode().splitlines(), 1):
        try:
            name, part, size, licence, sha256 = line.split("\t")
            files.append(CodeFile(name, sha256, int(size), licence, part))
        except ValueError:
            raise ConfigError(f"{path}: line {number} is no file of a manifest: {line[:80]!r}") from None
    return files


def require_same(files: Sequence[CodeFile], path: Path) -> None:
    """Raises ConfigError, naming the first file that is missing, superfluous or different from the manifest's."""
    wanted = {file.name: file for file in read(path)}
    found = {file.name: file for file in files}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            what = "is missing" if name not in found else "is too many" if name not in wanted else "differs"
            raise ConfigError(f"{path}: {name} {what}; the corpus is not the one of this manifest")
