"""Pictures that the guide shows, from those that test_gallery.py made: `python -m tests.console.gallery FOLDER`.

The guide names each as `pictures/console/PAGE-THEME.png`; PAGE is the page's address, with `one` for what it is about.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from PIL import Image

from tests.console.pages import file_name
from tests.console.routes import PARAMETER
from tests.deployment import ROOT

GUIDE = ROOT / "docs" / "guides" / "console-pages.md"
KEPT = ROOT / "docs" / "pictures" / "console"
LINK = re.compile(r"\.\./pictures/console/([\w-]+\.png)")
COLOURS = 128
"""Of a palette: the pages are flat, and a picture is a third as large."""


def page_name(route: str) -> str:
    """A page's pictures begin with it."""
    return file_name(PARAMETER.sub("one", route))


def shown() -> list[str]:
    """Names of the pictures in the guide, in its order."""
    return LINK.findall(GUIDE.read_text())


def keep(folder: Path) -> None:
    """Copy those from the folder, each with a palette of its own. One that is not there raises FileNotFoundError."""
    KEPT.mkdir(exist_ok=True)
    for name in shown():
        picture = Image.open(folder / name).convert("RGB")
        picture.quantize(COLOURS, dither=Image.Dither.NONE).save(KEPT / name, optimize=True)
    for path in KEPT.glob("*.png"):
        if path.name not in shown():
            path.unlink()


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
