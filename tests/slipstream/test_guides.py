"""What the guides show as settings, the settings take."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from contracts import settings
from engines.drivers import registry
from slipstream import fleet_check
from slipstream.settings import Settings
from tests.deployment import ROOT
from tests.prometheus import RULES, rules_in

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
        fleet_check.check_fleet(read)
    for pool in read.pools:
        pool.check_api_key()
        registry.of_pool(pool)


MONITORING = (ROOT / "docs" / "guides" / "monitoring.md").read_text()


def test_the_guide_lists_every_alert() -> None:
    alerts = {
        (rule["alert"], rule["annotations"]["runbook_url"].rpartition("/")[2], rule["labels"]["severity"])
        for file in RULES
        for rule in rules_in(file)
        if "alert" in rule
    }
    listed = re.findall(r"^\| \[`(\w+)`\]\(\.\./runbooks/([\w-]+\.md#[\w-]+)\) \| (\w+) \|", MONITORING, re.M)
    assert set(listed) == alerts


def test_every_scrape_configuration_is_yaml_that_names_the_rules() -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```$", MONITORING, re.M | re.S):
        found = yaml.safe_load(block)
        if "alerting" in found:
            assert set(found) == {"alerting"}, "beside the scrape configurations"
            continue
        assert found["rule_files"] == ["rules/*.yml"]
        assert all(job["job_name"].startswith("slipstream") for job in found["scrape_configs"])


def test_every_driver_has_an_example_with_models() -> None:
    examples = [tomllib.loads(block) for _, block in BLOCKS]
    shown = {pool["driver"] for example in examples if "models" in example for pool in example.get("pools", ())}
    assert shown == set(registry.names())
