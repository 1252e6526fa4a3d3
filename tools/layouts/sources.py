"""Reads the source files of a folder. In a git repository, ignored files stay unread.

The folder may be a repository of somebody else. Its configuration can make git start programs, and its index can name
files elsewhere, so git lists the files for an empty repository of ours with the same ignore rules.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from contracts.errors import ConfigError
from gateway.wire.language import language_of_path

MAX_FILE_BYTES = 256 * 1024
MAX_BYTES = 32 * 1024 * 1024
"""Of all files together."""
GIT_TIMEOUT_S = 10.0
MAX_DEPTH = 100
"""Levels of folders below the named one that are read outside of a repository."""
SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "target", "vendor", "venv"})
"""Folders of built or foreign code, where no repository says what is ignored; hidden ones are skipped too."""
PROSE = frozenset({"html", "json", "markdown", "toml", "xml", "yaml"})


def read_sources(folder: Path) -> dict[str, str]:
    r"""The texts of a folder's source files by path below it, with `\n` line ends.

    Files over 256 KiB, links, files that are not UTF-8 and files of no programming language are left out. Raises
    ConfigError when none is left, and when git fails in a repository.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise ConfigError(f"--from {folder}: no such folder; name a folder of source code", param="--from")
    texts: dict[str, str] = {}
    size_bytes = 0
    for name in _listed(folder):
        text = _text(folder, name)
        if text is None:
            continue
        size_bytes += len(text)
        if size_bytes > MAX_BYTES:
            break
        texts[name] = text
    if not texts:
        raise ConfigError(
            f"--from {folder}: no source file of at most {MAX_FILE_BYTES // 1024} KiB in it that git does not ignore; "
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
    """Also tracked files are left out if they are ignored. None: the folder is in no repository."""
    top = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    if top is None:
        return None
    # this reads the folder's configuration, and starts no program of it
    found = _git("rev-parse", "--git-path", "info/exclude", folder=top, environment=os.environ)
    exclude = top / os.fsdecode(found.removesuffix(b"\n"))
    with tempfile.TemporaryDirectory() as own:
        for name in ("objects", "refs"):
            Path(own, name).mkdir()
        Path(own, "HEAD").write_text("ref: refs/heads/none\n")
        places = {"GIT_DIR": own, "GIT_WORK_TREE": str(top), "GIT_INDEX_FILE": f"{own}/index"}
        listed = _git(
            # or a setting of the user's would start a daemon for this repository, which outlives it
            *("-c", "core.fsmonitor=false", "ls-files", "-z", "--others", "--exclude-standard"),
            *([f"--exclude-from={exclude}"] if exclude.is_file() else []),
            folder=folder,
            environment={**os.environ, **places},
        )
    return os.fsdecode(listed).split("\0")


def _git(*arguments: str, folder: Path, environment: Mapping[str, str]) -> bytes:
    """Its output. Raises ConfigError: a reader that ignored the rules instead could send secrets."""
    try:
        done = subprocess.run(
            ("git", *arguments),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
        if not done.returncode:
            return done.stdout
        reason = done.stderr.decode(errors="replace").strip()
    except OSError as error:
        reason = str(error)
    except subprocess.TimeoutExpired:
        reason = f"no answer in {GIT_TIMEOUT_S:g} s"
    raise ConfigError(
        f"--from {folder}: git could not list the files that it does not ignore ({reason}); repair the repository or "
        "the installation of git, or name a folder outside of a repository",
        param="--from",
    )


def _by_walk(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        below = Path(place).relative_to(folder)
        deep = len(below.parts) >= MAX_DEPTH
        folders[:] = [name for name in folders if not (deep or name in SKIPPED or name.startswith("."))]
        yield from ((below / name).as_posix() for name in files)


def _text(folder: Path, name: str) -> str | None:
    """None: it is left out."""
    path = folder / name
    try:
        linked = path.resolve() != path or not path.is_relative_to(folder)
        if linked or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return None
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")
