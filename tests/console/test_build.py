"""What is committed in `control/console/dist`: small at first, closed to strangers, and without anything inline."""

from __future__ import annotations

import gzip
import re
from html.parser import HTMLParser

import msgspec
import pytest

from control.console.pages import DIST
from control.openapi import admin_document
from tests.console.built_from import FILE, digest

FIRST_LOAD_BYTES = 300_000
HASHED = re.compile(r"assets/[\w.-]+-[\w-]{8}\.(js|css|svg)")


class Loaded(HTMLParser):
    """The files that index.html loads, and what is inline in it."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []
        self.inline: list[str] = []
        self._open = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        for name in ("src", "href"):
            if given.get(name):
                self.files.append(str(given[name]))
        self.inline += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        self._open = "" if given.get("src") else tag

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style") and data.strip():
            self.inline.append(f"<{self._open}>")


@pytest.fixture
def loaded() -> Loaded:
    parser = Loaded()
    parser.feed((DIST / "index.html").read_text())
    return parser


def test_it_was_built_from_the_source_as_it_is() -> None:
    assert FILE.read_text().strip() == digest(), (
        "the console's source, the admin API or what was built has changed: make console-types console"
    )


def test_the_page_loads_files_of_its_own_by_hashed_names_and_holds_nothing_inline(loaded: Loaded) -> None:
    assert loaded.files
    for name in loaded.files:
        assert HASHED.fullmatch(name.removeprefix("/console/")), name
        assert (DIST / name.removeprefix("/console/")).is_file()
    assert loaded.inline == []


def test_a_first_load_is_under_300_kb_compressed(loaded: Loaded) -> None:
    """The page, and the overview with all it imports."""
    manifest = msgspec.json.decode((DIST / ".vite" / "manifest.json").read_bytes())
    wanted, found = ["index.html", "src/pages/tenants/home.tsx", "src/pages/tenants/overview.tsx"], set[str]()
    files = {name.removeprefix("/console/") for name in loaded.files}
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            entry = manifest[name]
            files |= {entry["file"], *entry.get("css", [])}
            wanted += entry.get("imports", [])
    total = sum(len(gzip.compress((DIST / name).read_bytes(), 9)) for name in {*files, "index.html"})
    assert total < FIRST_LOAD_BYTES, f"{total} bytes"


def test_nothing_in_it_leads_to_another_host() -> None:
    hosts = {"www.w3.org", "react.dev", "tanstack.com", "radix-ui.com", "www.radix-ui.com", "reactjs.org", "fb.me"}
    hosts |= {"example.com"}
    """Names of markup languages, and pages that errors of libraries name; nobody asks them."""
    for path in sorted(DIST.rglob("*.*")):
        if path.suffix in (".js", ".css", ".html"):
            told = set(re.findall(r"https?://([\w.-]+\.[a-z]{2,})", path.read_text()))
            assert told <= hosts, f"{path.name}: {sorted(told - hosts)}"


def test_every_reference_of_the_document_the_client_is_made_of_leads_somewhere() -> None:
    written = admin_document()
    document = msgspec.json.decode(written)
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', written.decode()))
    assert names <= set(document["components"]["schemas"])
