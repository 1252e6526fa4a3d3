"""Reads the source files of a folder: those that git lists, so that ignored files stay unread; without git, all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from contracts.errors import ConfigError
from gateway.wire.language import language_of_path

MOST_FILE_BYTES = 256 * 1024
MOST_BYTES = 32 * 1024 * 1024
"""Of all files together."""
GIT_TIMEOUT_S = 60.0
SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "target", "vendor", "venv"})
"""Folders of built or foreign code, where no git says what is ignored; hidden ones are skipped too."""
PROSE = frozenset({"html", "json", "markdown", "toml", "xml", "yaml"})


def read_sources(folder: Path) -> dict[str, str]:
    r"""The texts of a folder's source files by path below it, with `\n` line ends.

    Files over 256 KiB, links, files that are not UTF-8 and files of no programming language are left out. Raises
    ConfigError when none is left.
    """
    if not folder.is_dir():
        raise ConfigError(f"--from {folder}: no such folder; name a folder of source code", param="--from")
    texts: dict[str, str] = {}
    size_bytes = 0
    for name in _listed(folder):
        text = _text(folder / name)
        if text is None:
            continue
        size_bytes += len(text)
        if size_bytes > MOST_BYTES:
            break
        texts[name] = text
    if not texts:
        raise ConfigError(
            f"--from {folder}: no source file of at most {MOST_FILE_BYTES // 1024} KiB in it that git does not ignore; "
            "name a folder of source code",
            param="--from",
        )
    return texts


def _listed(folder: Path) -> Iterator[str]:
    """Paths of files in a programming language, in order."""
    listed = _by_git(folder)
    for name in sorted(set(_by_walk(folder) if listed is None else listed)):
        if (language := language_of_path(name)) and language not in PROSE:
            yield name


def _by_git(folder: Path) -> list[str] | None:
    """None: there is no git here."""
    # a repository's own configuration may name a program as its file monitor, which git would start
    arguments = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(arguments, cwd=folder, capture_output=True, timeout=GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if listed.returncode:
        return None
    return os.fsdecode(listed.stdout).split("\0")


def _by_walk(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        yield from ((Path(place) / name).relative_to(folder).as_posix() for name in files)


def _text(path: Path) -> str | None:
    """None: it is left out."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_FILE_BYTES:
            return None
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")
