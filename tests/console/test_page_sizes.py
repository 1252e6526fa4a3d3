"""No page of the console requests more rows at a time than the admin API gives: it would get a 400 instead of them."""

from __future__ import annotations

import re

from tests.console.test_actions import SOURCE, sources

MOST_ROWS = 100
"""Of `control.api.schemas`: the least of the limits that lists have."""
LIMIT = re.compile(r"\blimit: (\d+)")


def test_no_page_requests_more_rows_than_the_api_gives() -> None:
    found = {
        (str(path.relative_to(SOURCE)), int(limit)) for path, text in sources().items() for limit in LIMIT.findall(text)
    }
    assert len(found) >= 10, "the pattern finds those that are there"
    assert {each for each in found if each[1] > MOST_ROWS} == set()
