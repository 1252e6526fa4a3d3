"""Finds the Python files that a code model learns from, with their licences, and splits off held-out files.

There are three parts: `train`; `held` (groups of near-copies drawn from the base standard library); `new` (files of a
newer standard library that resemble no file of the base library or the packages, so that the base cannot contain them).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import random
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from tools.training.clusters import clusters

LARGEST_BYTES, SMALLEST_BYTES = 250_000, 400
SKIPPED_FOLDERS = frozenset({"test", "tests", "testing", "site-packages", "idle_test", "__pycache__", "lib2to3"})
PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache|ISC|PSF|Python Software Foundation)\b", re.IGNORECASE)
NOT_PERMISSIVE = re.compile(r"GPL|MPL|Mozilla|CNRI|EUPL", re.IGNORECASE)


class CodeFile(msgspec.Struct, frozen=True):
    """One file. The text is not part of the manifest."""

    name: str
    """Origin and path: `stdlib-3.11/json/decoder.py`, `click-8.1.7/click/core.py`."""
    sha256: str
    bytes: int
    licence: str
    part: str = "train"


class Corpus(msgspec.Struct, frozen=True):
    """Files and their texts by name."""

    files: list[CodeFile]
    texts: dict[str, str]

    def part(self, name: str) -> dict[str, str]:
        """The texts of one part, by file."""
        return {file.name: self.texts[file.name] for file in self.files if file.part == name}


def collect(
    stdlib: Path, newer: list[Path], site_packages: list[Path], packages: list[str], package_bytes: int, seed: int
) -> Corpus:
    """Read and split. newer: libraries of later Pythons, of which only new files are used, as `new`; package_bytes:
    limit per package. Raises ConfigError for a package that is missing or not permissively licensed."""
    texts: dict[str, str] = {}
    licences: dict[str, str] = {}

    def take(origin: str, licence: str, root: Path, paths: list[Path]) -> None:
        for path in paths:
            if (text := usable(path, root)) is not None:
                name = f"{origin}/{path.relative_to(root).as_posix()}"
                texts[name], licences[name] = text, licence

    base = f"stdlib-{stdlib.name.removeprefix('python')}"
    take(base, "PSF-2.0", stdlib, sorted(stdlib.rglob("*.py")))
    for package in packages:
        distribution = _distribution(package, site_packages)
        licence = licence_of(distribution)
        root = Path(str(distribution.locate_file("")))
        paths = [root / str(file) for file in distribution.files or () if file.suffix == ".py"]
        random.Random(f"{seed} {package}").shuffle(paths)
        origin = f"{package}-{distribution.version}"
        take(origin, licence, root, list(_up_to(paths, package_bytes)))
    later = [f"stdlib-{folder.name.removeprefix('python')}" for folder in newer]
    for origin, folder in zip(later, newer, strict=True):
        take(origin, "PSF-2.0", folder, sorted(folder.rglob("*.py")))
    parts = split(texts, base, later, seed)
    files = []
    for name, part in sorted(parts.items()):
        content = texts[name].encode()
        files.append(CodeFile(name, hashlib.sha256(content).hexdigest(), len(content), licences[name], part))
    return Corpus(files, {name: texts[name] for name in parts})


def split(texts: dict[str, str], base: str, later: list[str], seed: int, held_share: float = 0.04) -> dict[str, str]:
    """The part of each file that is used. Groups stay whole; later files in a group with older ones are not used."""
    groups: dict[str, list[str]] = {}
    for name, group in clusters(texts).items():
        groups.setdefault(group, []).append(name)
    parts: dict[str, str] = {}
    for group, names in sorted(groups.items()):
        older = [name for name in names if name.split("/")[0] not in later]
        if not older:
            # of several versions of a new file, only the latest is used
            latest = max(names, key=lambda name: later.index(name.split("/")[0]))
            # a file with the same name in the base library was rewritten and is not new
            if f"{base}/{latest.split('/', 1)[1]}" not in texts:
                parts[latest] = "new"
            continue
        from_base = all(name.startswith(base + "/") for name in older)
        chance = random.Random(f"{seed} {group}").random()
        part = "held" if from_base and chance < held_share else "train"
        parts.update(dict.fromkeys(older, part))
    return parts


def usable(path: Path, root: Path) -> str | None:
    """The text of a file worth learning from: readable, of medium size, written by hand and not a table."""
    if SKIPPED_FOLDERS.intersection(path.relative_to(root).parts[:-1]) or not path.is_file():
        return None
    if not SMALLEST_BYTES <= path.stat().st_size <= LARGEST_BYTES:
        return None
    try:
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n").expandtabs(8)
    except UnicodeDecodeError:
        return None
    lines = text.splitlines()
    digits = sum(map(str.isdigit, text)) + text.count("\\x")
    generated = re.search(r"generated (by|from|using)|do not edit", text[:600], re.IGNORECASE)
    table = digits > 0.15 * len(text) or len(text) > 100 * len(lines)
    return None if generated or table else text


def licence_of(distribution: importlib.metadata.Distribution) -> str:
    """The licence in the package's metadata. Raises ConfigError if it is not permissive."""
    metadata = distribution.metadata
    values = [value for key in ("License-Expression", "License") for value in metadata.get_all(key) or ()]
    names = [value.split("\n")[0][:60] for value in values]
    names += [line.split("::")[-1].strip() for line in metadata.get_all("Classifier") or () if "License ::" in line]
    licence = next((text for text in names if PERMISSIVE.search(text)), "")
    if not licence or NOT_PERMISSIVE.search(" ".join(names)):
        raise ConfigError(f"{metadata['Name']}: licence {names} is not known to be permissive; leave the package out")
    return licence


def _distribution(package: str, site_packages: list[Path]) -> importlib.metadata.Distribution:
    found = next(iter(importlib.metadata.distributions(name=package, path=[str(path) for path in site_packages])), None)
    if found is None:
        raise ConfigError(f"{package}: not installed in any of {[str(path) for path in site_packages]}")
    return found


def _up_to(paths: list[Path], limit_bytes: int) -> Iterator[Path]:
    total = 0
    for path in paths:
        if path.is_file() and total < limit_bytes:
            total += path.stat().st_size
            yield path


def save(corpus: Corpus, folder: Path) -> None:
    """Write manifest.json (files without their texts) and texts.msgpack."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_bytes(msgspec.json.format(msgspec.json.encode(corpus.files), indent=1))
    (folder / "texts.msgpack").write_bytes(msgspec.msgpack.encode(corpus.texts))


def load(folder: Path) -> Corpus:
    """Read what `save` wrote. Raises ConfigError if it is missing or a text does not match the manifest."""
    try:
        files = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=list[CodeFile])
        texts = msgspec.msgpack.decode((folder / "texts.msgpack").read_bytes(), type=dict[str, str])
    except OSError as error:
        raise ConfigError(
            f"{folder}: no corpus: {error.strerror}; make one with python -m tools.training corpus"
        ) from None
    for file in files:
        if hashlib.sha256(texts[file.name].encode()).hexdigest() != file.sha256:
            raise ConfigError(f"{folder}: {file.name} is not the text of the manifest")
    return Corpus(files, texts)
