"""The command lines of a deployment's own processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.embedded.config import EngineConfig
from infra.local.config import LocalConfig
from infra.local.ports import Ports
from slipstream import fleet
from slipstream.metrics_targets import Target
from slipstream.processes import Processes
from slipstream.settings import Settings
from speculative.config import SpeculationConfig


@pytest.mark.parametrize(
    ("own", "of_all", "methods"),
    [
        (LocalConfig(), "off", {"chat": "off", "autocomplete": "ngram"}),
        (LocalConfig(code_speculation="off"), "off", {"chat": "off", "autocomplete": "off"}),
        (LocalConfig(code_speculation="off"), "ngram", {"chat": "ngram", "autocomplete": "ngram"}),
        (LocalConfig(), "eagle", {"chat": "eagle", "autocomplete": "eagle"}),
    ],
)
def test_engines_of_the_autocomplete_tier_draft_unless_the_settings_say_otherwise(
    own: LocalConfig, of_all: str, methods: dict[str, str], tmp_path: Path
) -> None:
    settings = Settings(local=own, engine=EngineConfig(speculation=SpeculationConfig(method=of_all)))  # type: ignore[arg-type]
    engines = fleet.embedded(own, Ports(tmp_path / "ports")).engines
    processes = Processes(settings, [Target("engine", engine.name, "127.0.0.1", 1) for engine in engines])
    started = {engine.name: processes.engine(engine).launch.argv for engine in engines}
    found = {name.split("-")[1]: argv[argv.index("--speculation") + 1] for name, argv in started.items()}
    assert found == methods
