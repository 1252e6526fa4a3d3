"""Packs the files in which code slices replay edits: `python -m evals.pack_code_files`.

There are two kinds, and the shipped code model learned from neither: files of the standard library that its training
held out (`tools/training/data/slipstream-code.tsv.gz`, by name and SHA-256), and files of this repository, which its
training did not use. A new pack is a new version of the slices: results before and after it are never compared.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import sysconfig
import tokenize
from pathlib import Path

import click

from evals.slices.code_files import PACK, CodeFile, pack, places

OWN = ("contracts", "control", "engines", "gateway", "infra", "router", "speculative", "storage", "tools/planning")
"""Folders of this repository. A missing folder is left out silently."""
OWN_FILES = 100
OWN_BYTES = (2_500, 12_000)
MIN_PLACES = 25
"""Minimum for a file: fewer places would be drawn again and again."""


@click.command()
@click.option(
    "--stdlib",
    type=click.Path(path_type=Path, exists=True),
    default=sysconfig.get_paths()["stdlib"],
    show_default=True,
    help="Of the Python that the training read: 3.11.",
)
@click.option("--repository", type=click.Path(path_type=Path, exists=True), default=".", show_default=True)
def main(stdlib: Path, repository: Path) -> None:
    """Pack the files again."""
    files = [*held_out(stdlib, repository), *own_files(repository)]
    PACK.parent.mkdir(exist_ok=True)
    PACK.write_bytes(pack(files))
    click.echo(f"{len(files)} files, {sum(len(file.text) for file in files):,} characters, {PACK.stat().st_size:,} B")


def held_out(stdlib: Path, repository: Path) -> list[CodeFile]:
    """The files that training held out and that are unchanged here."""
    found = []
    rows = gzip.decompress((repository / "tools/training/data/slipstream-code.tsv.gz").read_bytes()).decode()
    for name, part, _, _, sha256 in (line.split("\t") for line in rows.splitlines()):
        path = stdlib / name.partition("/")[2]
        if part == "held" and path.is_file():
            text = path.read_text(encoding="utf-8").replace("\r\n", "\n").expandtabs(8)
            if hashlib.sha256(text.encode()).hexdigest() == sha256 and _is_usable(text):
                found.append(CodeFile(name, text))
    return found


def own_files(repository: Path) -> list[CodeFile]:
    """Files of this repository, drawn by a hash of their names."""
    low, high = OWN_BYTES
    found = []
    for package in OWN:
        for path in sorted((repository / package).rglob("*.py")):
            if low <= path.stat().st_size <= high and not path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
                text = path.read_text(encoding="utf-8")
                if _is_usable(text):
                    found.append(CodeFile(f"slipstream/{path.relative_to(repository).as_posix()}", text))
    return sorted(found, key=lambda file: hashlib.sha256(file.name.encode()).digest())[:OWN_FILES]


def _is_usable(text: str) -> bool:
    try:
        ast.parse(text)
        return len(places(text)) >= MIN_PLACES
    except (SyntaxError, tokenize.TokenError):
        return False


if __name__ == "__main__":
    main()
