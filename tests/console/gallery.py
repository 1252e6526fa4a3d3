"""Pictures that the guide shows, from those the tests made: `python -m tests.console.gallery FOLDER`.

The guide decides which: it names each as `pictures/console/NAME-THEME.png`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from PIL import Image

from tests.deployment import ROOT

GUIDE = ROOT / "docs" / "guides" / "console-pages.md"
KEPT = ROOT / "docs" / "pictures" / "console"
LINK = re.compile(r"\.\./pictures/console/([\w-]+\.png)")
COLOURS = 256
"""Of a palette: the pages are flat, and a picture is a third as large."""


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
