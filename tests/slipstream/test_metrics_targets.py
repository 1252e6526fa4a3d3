"""The list that Prometheus reads: a port for each process, the same at every start, whole at every moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.errors import ConfigError
from contracts.metrics import MetricsConfig
from infra.local.config import LocalConfig
from infra.local.ports import Ports
from router.config import RouterConfig
from slipstream.gateway_settings import GatewaySettings
from slipstream.metrics_targets import Target, listed, targets_of
from slipstream.processes import names_of
from slipstream.settings import Settings


def read(file: Path) -> Any:
    return msgspec.json.decode(file.read_bytes())


def test_every_process_has_a_port_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    settings = Settings(local=LocalConfig(gateways=3))
    first = Ports(tmp_path / "ports")
    chosen = targets_of(settings, names_of(settings, ()), first)
    assert [target.name for target in chosen] == [
        "gateway-1", "gateway-2", "gateway-3", "router", "worker",
    ]  # fmt: skip
    assert {target.host for target in chosen} == {"127.0.0.1"}
    assert len({target.port for target in chosen} - {0}) == len(chosen)
    first.save()
    second = Ports(tmp_path / "ports")
    assert targets_of(settings, names_of(settings, ()), second) == chosen


def test_a_port_that_is_set_is_the_first_of_its_kind(tmp_path: Path) -> None:
    settings = Settings(
        local=LocalConfig(gateways=2),
        gateway=GatewaySettings(metrics=MetricsConfig("0.0.0.0", 9101)),
        router=RouterConfig(metrics=MetricsConfig("10.0.0.5", 9100)),
    )
    targets = targets_of(settings, names_of(settings, ()), Ports(tmp_path / "ports"))
    assert targets[:3] == (
        Target("gateway", "gateway-1", "127.0.0.1", 9101),
        Target("gateway", "gateway-2", "127.0.0.1", 9102),
        Target("router", "router", "10.0.0.5", 9100),
    )


def test_the_list_is_prometheus_own_format_and_goes_with_the_processes(tmp_path: Path) -> None:
    file = tmp_path / "targets.json"
    file.write_text("what a killed predecessor left")
    with listed([Target("router", "router", "::1", 9100), Target("gateway", "gateway-1", "127.0.0.1", 9101)], file):
        assert read(file) == [
            {"targets": ["[::1]:9100"], "labels": {"job": "slipstream-router", "instance": "router"}},
            {"targets": ["127.0.0.1:9101"], "labels": {"job": "slipstream-gateway", "instance": "gateway-1"}},
        ]
        assert list(tmp_path.iterdir()) == [file]
    assert not file.exists()


def test_a_list_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"no/targets\.json: no such file or directory"),
        listed([], tmp_path / "no" / "targets.json"),
    ):
        pass
