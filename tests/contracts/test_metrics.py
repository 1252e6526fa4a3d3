"""Metrics at a port of the process' own: shown while it runs, to whom it is bound, or the start is refused."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from contracts import metrics, settings
from contracts.errors import ConfigError
from contracts.metrics import MetricsConfig, metrics_server
from tests.deployment import free_port

PROMETHEUS_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"


def fetched(url: str | urllib.request.Request) -> list[str]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        lines: list[str] = answer.read().decode().splitlines()
        return lines


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_shows_what_is_counted_as_long_as_it_is_entered(host: str) -> None:
    registry, port = CollectorRegistry(), free_port()
    counter = Counter("events", "-", registry=registry)
    url = f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"
    with metrics_server(registry, MetricsConfig(host, port), "router.metrics"):
        assert "events_total 0.0" in fetched(url)
        counter.inc()
        lines = fetched(url)
        assert "events_total 1.0" in lines
        assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
    with pytest.raises(urllib.error.URLError):
        fetched(url)


@pytest.mark.parametrize(
    "accept", [PROMETHEUS_2, "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8", "*/*"]
)
def test_names_are_the_same_whoever_asks(accept: str) -> None:
    registry, port = CollectorRegistry(), free_port()
    Gauge("sglang:token_usage", "-", registry=registry).set(0.5)
    with metrics_server(registry, MetricsConfig(port=port), "engine.metrics"):
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
        assert "sglang:token_usage 0.5" in fetched(asked)


def test_port_0_is_no_port() -> None:
    with metrics_server(CollectorRegistry(), MetricsConfig(), "router.metrics"):
        pass


def test_a_port_that_cannot_be_had_is_one_sentence() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = MetricsConfig(port=listener.getsockname()[1])
        server = metrics_server(CollectorRegistry(), config, "gateway.metrics")
        with pytest.raises(ConfigError, match=r"^gateway\.metrics\.port: cannot listen on 127\.0\.0\.1:\d+ \(") as told:
            server.__enter__()
    assert told.value.param == "gateway.metrics.port"


class Sections(msgspec.Struct, frozen=True):
    router: MetricsConfig = MetricsConfig()


def test_a_port_out_of_range_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[router]\nport = 65536\n")
    with pytest.raises(ConfigError, match=r"router\.port: .*65535.*; got 65536"):
        settings.load(Sections, tmp_path / "s.toml", {})


def test_who_sends_no_whole_request_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_S", 0.2)
    port = free_port()
    with (
        metrics_server(CollectorRegistry(), MetricsConfig(port=port), "router.metrics"),
        socket.create_connection(("127.0.0.1", port), timeout=60) as slow,
    ):
        slow.sendall(b"GET /metrics HT")
        assert slow.recv(1) == b""
