"""Recording and alerting rules: promtool takes them, each is tested with series that make it fire, each has a runbook.

`prometheus/NAME.yml` beside this file holds the tests of the rules in `infra/prometheus/rules/NAME.yml`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from control.slo.judgement import CLIENT_GONE, REFUSED, SUPERSEDED
from slipstream.reference import metrics_page
from tests.deployment import ROOT
from tests.prometheus import RULES, metrics_in, promtool, rules_in

TESTS = Path(__file__).parent / "prometheus"
ABOUT_SCRAPES = {"up", "process_start_time_seconds"}
"""Metrics that are not ours: Prometheus' own, and prometheus_client's."""
families = pytest.mark.parametrize("file", RULES, ids=lambda file: file.stem)


def known() -> set[str]:
    """Names of the reference and of recorded series."""
    recorded = {rule["record"] for file in RULES for rule in rules_in(file) if "record" in rule}
    return set(re.findall(r"^\| `([\w:]+)`", metrics_page(), re.M)) | recorded


@pytest.mark.system
def test_the_real_promtool_takes_the_rules() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", *map(str, RULES))


@pytest.mark.system
@families
def test_rules_say_what_their_series_ask_for(file: Path) -> None:
    promtool("test", "rules", str(TESTS / file.name))


@families
def test_every_rule_has_a_test(file: Path) -> None:
    tests = yaml.safe_load((TESTS / file.name).read_text())["tests"]
    checks = [check for test in tests for check in test["promql_expr_test"]]
    fired = {
        found
        for check in checks
        for sample in check["exp_samples"]
        for found in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    looked_at = " ".join(check["expr"] for check in checks if check["exp_samples"])
    assert fired == {rule["alert"] for rule in rules_in(file) if "alert" in rule}
    assert all(rule["record"] in looked_at for rule in rules_in(file) if "record" in rule)
    assert any(not check["exp_samples"] for check in checks), "none of these alerts is shown not to fire"


@families
def test_every_alert_says_how_urgent_it_is_and_where_to_read_on(file: Path) -> None:
    for rule in rules_in(file):
        if "alert" not in rule:
            continue
        assert re.search(r"[<>=]|unless", rule["expr"]), "a vector alone would always fire"
        assert rule["labels"]["severity"] in ("page", "ticket")
        annotations = rule["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        assert annotations["runbook_url"] == f"docs/runbooks/{file.stem}.md#{rule['alert'].lower()}"


@families
def test_every_rule_is_about_metrics_that_there_are(file: Path) -> None:
    for rule in rules_in(file):
        read = metrics_in(rule["expr"])
        assert read or set(re.findall(r"\w+", rule["expr"])) & ABOUT_SCRAPES
        assert read <= known(), rule["expr"]


@families
def test_runbooks_have_a_section_for_each_alert_and_say_what_does_not_help(file: Path) -> None:
    page = (ROOT / "docs" / "runbooks" / f"{file.stem}.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert set(sections) == {rule["alert"] for rule in rules_in(file) if "alert" in rule}
    for name, text in sections.items():
        said = re.findall(r"^\*\*([A-Z][\w ]+)\*\*", text, re.M)
        assert said == ["Meaning", "Check", "Remedy", "Does not help"], name


def test_errors_of_ours_have_the_same_codes_in_the_rule_the_board_the_runbook_and_objectives() -> None:
    """A stream that fails after its head has the status 200."""
    rules = [rule for file in RULES for rule in rules_in(file)]
    [rule] = [rule for rule in rules if rule.get("record") == "tier:slipstream_server_errors:ratio_rate5m"]
    [codes] = re.findall(r'code!~"([^"]*)"', rule["expr"])
    assert set(codes.split("|")) == {"none", CLIENT_GONE, SUPERSEDED, *REFUSED}
    for page in ("infra/grafana/boards/overview.py", "docs/runbooks/requests.md"):
        assert f'code!~"{codes}"' in (ROOT / page).read_text(), page
