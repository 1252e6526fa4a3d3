"""Reads the source files of a folder. In a git repository, it skips ignored files.

The repository is not trusted: its configuration can make git start programs, and its index can name files elsewhere. So
git lists the files for an empty temporary repository with the same ignore rules.
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
"""Limit of all files together; the files after it are left out."""
GIT_TIMEOUT_S = 10.0
MAX_DEPTH = 100
"""Levels of folders below the named one that are read outside a repository."""
SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "target", "vendor", "venv"})
"""Folders of built or third-party code, which are skipped outside a repository, like hidden folders."""
PROSE = frozenset({"html", "json", "markdown", "toml", "xml", "yaml"})


def read_sources(folder: Path) -> dict[str, str]:
    r"""The texts of a folder's source files by relative path, with `\n` line ends.

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
    """Paths without ignored files, even tracked ones. None if the folder is in no repository."""
    top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
    if top is None:
        return None
    # this reads the repository's configuration but starts no program from it
    found = _git("rev-parse", "--git-path", "info/exclude", folder=top, environment=os.environ)
    exclude = top / os.fsdecode(found.removesuffix(b"\n"))
    with tempfile.TemporaryDirectory() as own:
        for name in ("objects", "refs"):
            Path(own, name).mkdir()
        Path(own, "HEAD").write_text("ref: refs/heads/none\n")
        variables = {"GIT_DIR": own, "GIT_WORK_TREE": str(top), "GIT_INDEX_FILE": f"{own}/index"}
        listed = _git(
            # else a user's setting could start a daemon that outlives this repository
            *("-c", "core.fsmonitor=false", "ls-files", "-z", "--others", "--exclude-standard"),
            *([f"--exclude-from={exclude}"] if exclude.is_file() else []),
            folder=folder,
            environment={**os.environ, **variables},
        )
    return os.fsdecode(listed).split("\0")


def _git(*arguments: str, folder: Path, environment: Mapping[str, str]) -> bytes:
    """Git's output. Raises ConfigError, since reading without the ignore rules could send secrets."""
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
    for path, folders, files in os.walk(folder):
        relative = Path(path).relative_to(folder)
        deep = len(relative.parts) >= MAX_DEPTH
        folders[:] = [name for name in folders if not (deep or name in SKIPPED or name.startswith("."))]
        yield from ((relative / name).as_posix() for name in files)


def _text(folder: Path, name: str) -> str | None:
    """The file's text; None if the file is left out."""
    path = folder / name
    try:
        linked = path.resolve() != path or not path.is_relative_to(folder)
        if linked or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return None
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")
