"""What `slipstream usage prefix` says of a tenant whose engines reused more than whole blocks."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest.mock import patch

import msgspec
import pytest
from click.testing import CliRunner

from control.prefixes.prefixes import PrefixShare
from gateway.prefixes.difference import Cause
from slipstream.commands.prefix import prefix

SHARE = PrefixShare(
    hour=datetime(2026, 11, 23, 9, tzinfo=UTC),
    model="m",
    endpoint="/v1/chat/completions",
    template="t",
    cause=Cause.NEW_TEXT,
    part="",
    requests=10,
    prompt_tokens=1_000,
    reusable_tokens=640,
    cached_tokens=900,
    differing_token=None,
)
OTHER = msgspec.structs.replace(SHARE, template="u", reusable_tokens=0, cached_tokens=0)


@pytest.mark.parametrize(("shares", "more"), [([SHARE], True), ([SHARE, OTHER, OTHER], True), ([OTHER], False)])
def test_more_reused_than_came_before_in_whole_blocks_is_told_why(shares: list[PrefixShare], more: bool) -> None:
    with (
        patch("slipstream.administration.administer", lambda *_: (shares, [])),
        patch("slipstream.commands.prefix.running_settings"),
    ):
        result = CliRunner().invoke(prefix, ["--organization", "acme"])
    assert result.exit_code == 0, result.output
    assert ("which hold parts of blocks too" in result.output) is more
    lost = [float(line.split()[-1].rstrip("%")) for line in result.output.splitlines() if line.startswith(("t ", "u "))]
    came_before = float(result.output.split("UTC, by whole hours\n")[1].split("%")[0])
    assert came_before + sum(lost) == pytest.approx(100.0, abs=0.2)
