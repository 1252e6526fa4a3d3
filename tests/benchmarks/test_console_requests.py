"""The benchmark of the console's pages leaves none out."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

import pytest

from benchmarks.console.requests import Ask, View, pages
from control.operations import OPERATIONS, PREFIX
from tests.console.routes import PATH, routes
from tests.deployment import ROOT


@pytest.fixture
def views() -> dict[str, list[View]]:
    """By route, of things with made up ids."""
    return pages(defaultdict(lambda: "7"), datetime.now(UTC))


def test_every_route_of_the_console_is_loaded(views: dict[str, list[View]]) -> None:
    entries = set(PATH.findall((ROOT / "console" / "src" / "router.tsx").read_text()))
    assert set(views) == entries | set(routes())


def test_what_pages_ask_is_there_to_be_asked(views: dict[str, list[View]]) -> None:
    """Every path is one of the API's reads, and every list is one that a page of the console names."""
    reads = [each.path.split("/")[1:] for each in OPERATIONS if each.method == "GET"]

    def known(path: str) -> bool:
        parts = path.removeprefix(PREFIX).split("?")[0].split("/")[1:]
        return any(
            len(each) == len(parts)
            and all(one.startswith("{") or one == other for one, other in zip(each, parts, strict=True))
            for each in reads
        )

    def asked(asks: tuple[Ask, ...]) -> set[str]:
        return {path for each in asks for path in ({each.path} | asked(each.then))}

    paths = {path for each in views.values() for view in each for path in asked(view.asks)}
    assert [path for path in sorted(paths) if path.startswith(PREFIX) and not known(path)] == []
