"""What the guides show as settings, the settings take."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from contracts import settings
from engines.drivers import registry
from slipstream import start_check
from slipstream.reference import metrics_page
from slipstream.settings import Settings
from tests.deployment import ROOT
from tests.prometheus import RULES

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))
BLOCKS = [
    (page.name, block) for page in PAGES for block in re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.M | re.S)
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_every_example_of_settings_is_valid(page: str, block: str, tmp_path: Path) -> None:
    file = tmp_path / page
    file.write_text(block)
    read = settings.load(Settings, file, {})
    if read.models:
        start_check.check_fleet(read)
    for pool in read.pools:
        pool.check_api_key()
        registry.of_pool(pool)


DASHBOARD = ROOT / "infra" / "grafana" / "slipstream.json"
MONITORING = (ROOT / "docs" / "guides" / "monitoring.md").read_text()


def test_the_guide_lists_every_alert() -> None:
    alerts = {
        (rule["alert"], rule["labels"]["severity"])
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    listed = re.findall(r"^\| \[`(\w+)`\]\(\.\./runbooks/([\w-]+\.md#[\w-]+)\) \| (\w+) \|", MONITORING, re.M)
    assert {(name, severity) for name, _, severity in listed} == alerts


def test_every_panel_is_about_metrics_that_there_are_and_is_explained() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    for panel in panels:
        assert f"| {panel['title']} | {panel['description']} |\n" in MONITORING
        for target in panel["targets"]:
            assert _metrics_in(target["expr"])
            assert _metrics_in(target["expr"]) <= _metrics(), panel["title"]


def test_every_scrape_configuration_is_yaml_that_names_the_rules() -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```$", MONITORING, re.M | re.S):
        found = yaml.safe_load(block)
        assert found["rule_files"] == ["rules/*.yml"]
        assert all(job["job_name"].startswith("slipstream") for job in found["scrape_configs"])


def _metrics_in(expression: str) -> set[str]:
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"slipstream_\w+", expression)}


def _metrics() -> set[str]:
    return set(re.findall(r"slipstream_\w+", metrics_page()))


def test_every_driver_has_an_example_with_models() -> None:
    examples = [tomllib.loads(block) for _, block in BLOCKS]
    shown = {pool["driver"] for example in examples if "models" in example for pool in example.get("pools", ())}
    assert shown == set(registry.names())
