"""The command lines of a deployment's own processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.embedded.config import EngineConfig
from infra.local.config import LocalConfig
from infra.local.ports import Ports
from slipstream import local_engines
from slipstream.gateway_settings import GatewaySettings
from slipstream.metrics_targets import Target
from slipstream.processes import Processes
from slipstream.settings import Settings
from speculative.config import SpeculationConfig


@pytest.mark.parametrize(
    ("own", "of_all", "methods"),
    [
        (LocalConfig(), "auto", {"chat": "off", "autocomplete": "ngram"}),
        (LocalConfig(code_speculation="off"), "auto", {"chat": "off", "autocomplete": "off"}),
        (LocalConfig(), "off", {"chat": "off", "autocomplete": "off"}),
        (LocalConfig(code_speculation="off"), "ngram", {"chat": "ngram", "autocomplete": "ngram"}),
        (LocalConfig(), "eagle", {"chat": "eagle", "autocomplete": "eagle"}),
    ],
)
def test_engines_of_the_autocomplete_tier_draft_unless_the_settings_say_otherwise(
    own: LocalConfig, of_all: str, methods: dict[str, str], tmp_path: Path
) -> None:
    settings = Settings(local=own, engine=EngineConfig(speculation=SpeculationConfig(method=of_all)))  # type: ignore[arg-type]
    _, engines = local_engines.planned(settings)
    assert {engine.pool: engine.config.speculation.method for engine in engines} == methods


def test_an_engine_is_started_by_a_file_of_its_own_and_kept_to_its_threads(tmp_path: Path) -> None:
    settings = Settings(local=LocalConfig(data=str(tmp_path)), engine=EngineConfig(threads=3))
    _, planned = local_engines.planned(settings)
    engines = local_engines.placed(planned, Ports(tmp_path / "ports"))
    processes = Processes(settings, [Target("engine", engine.name, "127.0.0.1", 1) for engine in engines])
    for engine in engines:
        launch = processes.engine(engine).launch
        assert launch.argv[-4:] == (
            "--config",
            str(settings.data.engine_settings_file(engine.name)),
            "--metrics-port",
            "1",
        )
        assert launch.environment["OMP_NUM_THREADS"] == "3"


def test_a_gateway_that_leaves_late_is_given_the_time_for_it(tmp_path: Path) -> None:
    gateway = GatewaySettings(leave_after_s=20.0, drain_timeout_s=30.0)
    settings = Settings(local=LocalConfig(data=str(tmp_path)), gateway=gateway)
    processes = Processes(settings, [Target("gateway", "gateway-1", "127.0.0.1", 1)])
    assert processes.gateway(1).drain_s == 50.0
