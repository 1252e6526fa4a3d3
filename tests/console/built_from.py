"""What `control/console/dist` was built from, as one digest beside it: `python -m tests.console.built_from` writes it.

`console/build.sh` does so once it has checked, tested and built. While the digest holds, another build would end in the
same files, so CI need not make one.
"""

from __future__ import annotations

import hashlib
import runpy
from collections.abc import Iterator
from pathlib import Path

import msgspec

from control.console.pages import DIST
from tests.deployment import ROOT

SOURCE = ROOT / "console"
FILE = DIST.with_name("dist.sha256")
INSTALLED = "node_modules"


def digest() -> str:
    """Of the console's source and lock files, of the admin API's document, and of what was built of them."""
    found = hashlib.sha256()
    for name, content in _parts():
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def _parts() -> Iterator[tuple[str, bytes]]:
    for folder in (SOURCE, DIST):
        for path in sorted(_files(folder)):
            yield str(path.relative_to(ROOT)), path.read_bytes()
    document = runpy.run_path(str(SOURCE / "openapi" / "document.py"))["console_document"]()
    yield "the admin API", msgspec.json.encode(document, order="sorted")


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and path.name != INSTALLED:
            yield from _files(path)
        elif path.is_file() and path.suffix != ".md":
            yield path


if __name__ == "__main__":
    FILE.write_text(digest() + "\n")
