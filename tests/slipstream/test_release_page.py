"""The example of the page about releases, run from top to bottom as it stands, on two engines of the shipped model."""

from __future__ import annotations

import pytest

from tests.deployment import ROOT
from tests.slipstream.guide import reader, shell_blocks

pytestmark = pytest.mark.nightly
PAGE = ROOT / "docs" / "guides" / "release.md"


@pytest.mark.timeout(1_200)  # thousands of requests to two models, on a machine that may be busy
async def test_the_page_releases_a_candidate_to_all_traffic_and_rolls_one_back_by_hand() -> None:
    async with reader() as person:
        person.install()
        said = [await person.paste(block) for block in shell_blocks(PAGE)]
    watched, by_hand = said[-2], said[-1]
    for stage in ("stage 2 of 4 (25 %)", "stage 3 of 4 (50 %)"):
        assert f"evidence   {stage}: " in watched
    assert "state      promoted at stage 4 of 4 (100 %)" in watched
    assert "100 % of the sessions go to the candidate" in watched
    assert "state      rolled_back at stage " in by_hand
    assert "roll_back by" in by_hand
    [row] = [line for line in by_hand.splitlines() if "  rolled_back  " in line]
    assert "  0 %  " in row
    assert "tried by hand" in row
