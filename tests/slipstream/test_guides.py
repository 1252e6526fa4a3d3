"""What the guides show as settings, the settings take."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from contracts import settings
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES
from engines.drivers import registry
from slipstream import start_check
from slipstream.__main__ import cli
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
        start_check.check_fleet(read)
    for pool in read.pools:
        pool.check_api_key()
        registry.of_pool(pool)


def test_objectives_for_a_processor_are_the_same_on_both_pages_and_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a reader does: into slipstream.toml, and `config check`."""
    concept = (ROOT / "docs" / "concepts" / "slo.md").read_text()
    shown = [block for page, block in BLOCKS if page == "README.md" and "[slo]" in block]
    assert [block for block in re.findall(r"^```toml\n(.*?)^```$", concept, re.M | re.S) if "[slo]" in block] == shown
    [block] = shown
    (tmp_path / "slipstream.toml").write_text(block)
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(cli, ["config", "check", "--config", "slipstream.toml"])
    assert ended.exit_code == 0, ended.output
    usual = {(each.tier, each.length): each for each in OBJECTIVES}
    promised = settings.load(Settings, tmp_path / "slipstream.toml", {}).slo.objectives
    assert {(each.tier, each.length) for each in promised} == {key for key in usual if key[1] is not LengthClass.LONG}
    for each in promised:
        default = usual[each.tier, each.length]
        assert each.ttft_ms > default.ttft_ms
        assert each.tpot_ms is not None
        assert default.tpot_ms is not None
        assert each.tpot_ms > default.tpot_ms


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
