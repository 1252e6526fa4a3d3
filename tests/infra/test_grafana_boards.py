"""Grafana's boards: the committed JSON is what their source gives, and each panel says what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from infra.grafana import render
from infra.grafana.__main__ import FOLDER
from infra.grafana.board import Board, Query
from infra.grafana.boards import BOARDS
from slipstream.reference import metrics_page
from tests.deployment import ROOT
from tests.prometheus import RULES, metrics_in, promtool, rules_in

boards = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
ALERTS = {f"{file.stem}/{rule['alert']}" for file in RULES for rule in rules_in(file) if "alert" in rule}
UNITS = {"s", "reqps", "ops", "percentunit", "short"}


@boards
def test_the_committed_json_is_what_the_board_gives(board: Board) -> None:
    file = FOLDER / f"{board.name}.json"
    assert file.read_text() == render.text(board), "write it anew: python -m infra.grafana"


def test_there_is_no_json_without_a_board() -> None:
    assert {Path(file).stem for file in FOLDER.iterdir()} == {board.name for board in BOARDS}


@boards
def test_every_panel_says_what_it_shows_and_leads_to_its_alerts(board: Board) -> None:
    titles = [panel.title for panel in board.panels]
    assert len(titles) == len(set(titles))
    for panel in board.panels:
        assert panel.description.endswith("."), panel.title
        assert panel.unit in UNITS, panel.title
        assert set(panel.alerts) <= ALERTS, panel.title


def test_every_alert_is_seen_on_a_board() -> None:
    shown = {alert for board in BOARDS for panel in board.panels for alert in panel.alerts}
    assert shown == ALERTS


@boards
def test_every_query_is_about_metrics_that_there_are(board: Board) -> None:
    known = set(re.findall(r"^\| `([\w:]+)`", metrics_page(), re.M))
    asked = [variable.query for variable in board.variables if not variable.sql]
    asked += [query.expression for panel in board.panels for query in panel.queries if isinstance(query, Query)]
    for expression in asked:
        assert metrics_in(expression) <= known, expression


@boards
def test_variables_are_used_and_what_is_used_is_a_variable(board: Board) -> None:
    rendered = render.text(board)
    used = set(re.findall(r"\$(?!__)(\w+)", " ".join(re.findall(r'"(?:expr|rawSql)": "(.*)"', rendered))))
    assert used == {variable.name for variable in board.variables}


def test_the_guide_lists_every_board() -> None:
    guide = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    for board in BOARDS:
        assert f"| {board.name} | {board.description} |\n" in guide


def test_grafana_finds_what_is_provisioned() -> None:
    grafana = ROOT / "infra" / "grafana"
    services = yaml.safe_load((ROOT / "infra" / "compose" / "monitoring.yaml").read_text())["services"]
    mounts = dict(reversed(mount.split(":")[:2]) for mount in services["grafana"]["volumes"])
    [provider] = yaml.safe_load((grafana / "provisioning" / "dashboards" / "slipstream.yaml").read_text())["providers"]
    compose = ROOT / "infra" / "compose"
    assert (compose / mounts[provider["options"]["path"]]).resolve() == FOLDER
    assert (compose / mounts["/etc/grafana/provisioning"]).resolve() == grafana / "provisioning"
    sources = (grafana / "provisioning" / "datasources" / "slipstream.yaml").read_text()
    assert set(re.findall(r"\$([A-Z_]+)", sources)) <= set(services["grafana"]["environment"])
    kinds = {source["type"] for source in yaml.safe_load(sources)["datasources"]}
    assert kinds == {render.PROMETHEUS["type"], render.POSTGRES["type"]}


@pytest.mark.system
def test_the_composed_prometheus_scrapes_the_composed_processes(tmp_path: Path) -> None:
    compose = ROOT / "infra" / "compose"
    scraped = yaml.safe_load((compose / "prometheus.yml").read_text())
    services = yaml.safe_load((compose / "compose.yaml").read_text())["services"]
    for job in scraped["scrape_configs"]:
        [[host, port]] = [target.split(":") for target in job["static_configs"][0]["targets"]]
        assert job["job_name"] == f"slipstream-{host}"
        assert services[host]["command"][-2:] == ["--metrics-port", port]
    # as monitoring.yaml mounts them
    shutil.copy(compose / "prometheus.yml", tmp_path)
    shutil.copytree(ROOT / "infra" / "prometheus" / "rules", tmp_path / "rules")
    promtool("check", "config", str(tmp_path / "prometheus.yml"))
