"""The console's addresses, read from its source: a page that is added is walked without a line more."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.deployment import ROOT

PATH = re.compile(r'^\s+path: "(/[^"]*)"', re.MULTILINE)
PARAMETER = re.compile(r"\$(\w+)")
ENTRY = frozenset({"/", "/sign-in", "/welcome"})
"""They lead elsewhere, or are for nobody who is signed in."""


def routes() -> list[str]:
    """Of every page for somebody who is signed in, with `$parameters`."""
    source = ROOT / "console" / "src"
    files = [source / "router.tsx", *sorted((source / "pages" / "operations").glob("*/routes.tsx"))]
    return [path for file in files for path in PATH.findall(file.read_text()) if path not in ENTRY]


def address(route: str, ids: Mapping[str, str]) -> str | None:
    """Where the page of these things is; None: not all of them are there."""
    if any(name not in ids for name in PARAMETER.findall(route)):
        return None
    return PARAMETER.sub(lambda found: ids[found[1]], route)
