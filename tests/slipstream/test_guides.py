"""What the guides show as settings, the settings take."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from contracts import settings
from engines.drivers import registry
from slipstream import start_check
from slipstream.reference import metrics_page
from slipstream.settings import Settings
from tests.deployment import ROOT

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


def test_every_alert_is_about_metrics_that_there_are() -> None:
    rules = re.findall(r"^ +expr: (.*)$", (ROOT / "docs" / "guides" / "deploy.md").read_text(), re.M)
    named = {name for rule in rules for name in re.findall(r"slipstream_\w+", rule)}
    assert named
    assert named <= set(re.findall(r"slipstream_\w+", metrics_page()))


def test_every_driver_has_an_example_with_models() -> None:
    examples = [tomllib.loads(block) for _, block in BLOCKS]
    shown = {pool["driver"] for example in examples if "models" in example for pool in example.get("pools", ())}
    assert shown == set(registry.names())
