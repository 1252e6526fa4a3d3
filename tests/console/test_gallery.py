"""The guide's pictures of the console's pages."""

from __future__ import annotations

from tests.console.gallery import KEPT, shown

MOST_BYTES = 4_000_000


def test_every_page_is_shown_in_light_and_dark_and_no_picture_is_kept_for_nothing() -> None:
    names = shown()
    assert len(names) == len(set(names))
    pages = {name.removesuffix("-light.png") for name in names if name.endswith("-light.png")}
    assert len(pages) >= 20
    assert set(names) == {f"{page}-{theme}.png" for page in pages for theme in ("light", "dark")}
    files = {path.name: path.stat().st_size for path in KEPT.iterdir()}
    assert set(files) == set(names)
    assert sum(files.values()) < MOST_BYTES
