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


def addresses(ids: Mapping[str, str]) -> dict[str, str]:
    """Where the page of every route is, of these things: none is left out."""
    found = routes()
    missing = {name for route in found for name in PARAMETER.findall(route)} - set(ids)
    assert not missing, f"tests/console/administered.py ADDRESSES: what {missing} are, please"
    return {route: PARAMETER.sub(lambda name: ids[name[1]], route) for route in found}
