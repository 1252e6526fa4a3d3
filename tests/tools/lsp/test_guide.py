"""The guide to editors: its settings are those that there are, with their defaults, and what it shows parses."""

from __future__ import annotations

import json
import re

import msgspec
import yaml

from tests.deployment import ROOT
from tools.lsp.config import LanguageServerConfig

PAGE = (ROOT / "docs" / "guides" / "editors.md").read_text()


def test_the_settings_are_all_there_with_their_defaults() -> None:
    shown: dict[str, object] = {}
    for names, defaults in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (`[^|]+`) \|", PAGE, re.M):
        values = [json.loads(default.strip("`")) for default in defaults.split(", ")]
        shown.update(zip([name.strip("`") for name in names.split(", ")], values, strict=True))
    assert shown == msgspec.structs.asdict(LanguageServerConfig())


def test_every_example_in_json_and_yaml_parses() -> None:
    blocks = re.findall(r"^```(json|yaml)\n(.*?)^```$", PAGE, re.M | re.S)
    assert {language for language, _ in blocks} == {"json", "yaml"}
    for language, block in blocks:
        assert json.loads(block) if language == "json" else yaml.safe_load(block)
