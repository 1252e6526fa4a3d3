"""The guide to the network names every finding there is, with its check and the numbers it is found by."""

from __future__ import annotations

import re

from slipstream.stream_audit.pattern import Pattern
from slipstream.stream_audit.report import report_of
from slipstream.stream_audit.rules import certificate, distance, first_event, name_lookup
from slipstream.stream_audit.verdict import Outcome
from tests.deployment import ROOT
from tests.slipstream.stream_audit.networks import measured
from tests.slipstream.stream_audit.test_rules import FINDINGS

GUIDE = (ROOT / "docs" / "guides" / "network.md").read_text()
FOUND = GUIDE.partition("## Findings")[2].partition("## An example")[0]


def test_the_guide_has_every_finding_and_no_other() -> None:
    documented = set(re.findall(r"^\| (?:`\w+`)? ?\| `(\w+)` \|", FOUND, re.M))
    patterns = {pattern.value for pattern in Pattern} - {Pattern.PROMPT.value, Pattern.UNKNOWN.value}
    assert documented == set(FINDINGS) | patterns


def test_the_guide_has_every_check() -> None:
    checks = {check.check for check in report_of(measured()).checks}
    assert set(re.findall(r"^\| `(\w+)` \| `", FOUND, re.M)) == checks


def test_the_guide_has_the_numbers_of_the_rules() -> None:
    assert f"over {name_lookup.SLOW_MS:.0f} ms" in FOUND
    assert f"over {distance.FAR_MS:.0f} ms" in FOUND
    assert f"over {first_event.SLOW_MS:.0f} ms" in FOUND
    assert f"within {certificate.SOON_DAYS:.0f} days" in FOUND
    assert all(f"`{outcome.value}`" in FOUND for outcome in Outcome)
