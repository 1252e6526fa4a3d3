"""Tables and pictures say what the runs said."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from router.simulator.chart import chart
from router.simulator.config import SimulatorConfig
from router.simulator.plot import Panel, svg
from router.simulator.sessions import SessionsConfig, sessions
from router.simulator.sweep import Row, sweep
from router.simulator.table import table

NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    config = SimulatorConfig(replicas=2)
    shape = SessionsConfig(block_tokens=512)
    return sweep(config, ["smg", "round_robin"], [1.0, 4.0], 2, lambda load, seed: sessions(load * 2, 20, seed, shape))


def test_a_row_holds_every_seed_and_their_mean(rows: list[Row]) -> None:
    assert {(row.policy, row.load) for row in rows} == {
        (policy, load) for policy in ("smg", "round_robin") for load in (1.0, 4.0)
    }
    for row in rows:
        assert len(row.runs) == 2
        assert row.mean("goodput") == pytest.approx((row.runs[0].goodput + row.runs[1].goodput) / 2)
        assert row.error("offered") > 0


def test_the_table_has_a_line_per_policy_and_load(rows: list[Row]) -> None:
    lines = [line for line in table(rows).splitlines()[1:] if line]
    assert [line.split()[:2] for line in lines] == [
        ["1", "smg"], ["1", "round_robin"], ["4", "smg"], ["4", "round_robin"],
    ]  # fmt: skip


def test_the_picture_is_xml_with_a_curve_per_policy_and_panel(rows: list[Row]) -> None:
    picture = ElementTree.fromstring(chart("two <nodes> & more", rows))
    assert len(picture.findall(".//svg:polyline", NAMESPACE)) == 4 * 2
    assert "two <nodes> & more" in [text.text for text in picture.findall("svg:text", NAMESPACE)]


def test_higher_values_are_drawn_higher_on_both_scales() -> None:
    for logarithmic in (False, True):
        panel = Panel("p", "x", "y", {"a": [(1, 1.0), (2, 30.0), (3, 900.0)]}, logarithmic)
        picture = ElementTree.fromstring(svg("t", [panel]))
        heights = [float(point.get("cy", "0")) for point in picture.findall(".//svg:circle", NAMESPACE)]
        assert heights == sorted(heights, reverse=True)
        assert len(set(heights)) == 3
