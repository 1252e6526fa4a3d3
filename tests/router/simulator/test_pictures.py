"""Tables and pictures say what the runs said."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from router.simulator.chart import chart, day_chart
from router.simulator.config import SimulatorConfig
from router.simulator.course import SPANS
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


def test_a_days_picture_has_a_curve_per_policy_over_its_hours_and_what_was_offered(rows: list[Row]) -> None:
    one_load = [row for row in rows if row.load == 4.0]
    text = day_chart("a day", one_load, 20.5)
    curves = ElementTree.fromstring(text).findall(".//svg:polyline", NAMESPACE)
    assert len(curves) == 4 * 2 + 1
    assert all(len(curve.get("points", "").split()) == SPANS for curve in curves)
    assert "hour of the day" in text


def test_the_course_of_a_run_adds_up_to_it(rows: list[Row]) -> None:
    for run in (run for row in rows for run in row.runs):
        length_s = 2 * run.course[0].middle_s
        assert [span.middle_s for span in run.course] == pytest.approx([length_s * (at + 0.5) for at in range(SPANS)])
        kept = sum(span.goodput * length_s * 2 for span in run.course)
        all_requests = sum(span.offered * length_s * 2 for span in run.course)
        assert all_requests >= kept > 0
        # the summary leaves the warm-up out
        assert all_requests == pytest.approx(run.requests / 0.8, rel=0.1)
        assert all(0 <= span.hit_rate <= 1 and 0 <= span.shed <= 1 for span in run.course)


def test_many_places_on_the_axis_become_few_round_ones() -> None:
    curve = [(0.25 + at * 0.5, 0.7) for at in range(48)]
    texts = [text.text for text in ElementTree.fromstring(svg("t", [Panel("p", "x", "y", {"a": curve})])).iter()]
    assert [text for text in texts if text in {"5", "10", "15", "20"}] == ["5", "10", "15", "20"]
    assert "0.75" not in texts


def test_higher_values_are_drawn_higher_on_both_scales() -> None:
    for logarithmic in (False, True):
        panel = Panel("p", "x", "y", {"a": [(1, 1.0), (2, 30.0), (3, 900.0)]}, logarithmic)
        picture = ElementTree.fromstring(svg("t", [panel]))
        heights = [float(point.get("cy", "0")) for point in picture.findall(".//svg:circle", NAMESPACE)]
        assert heights == sorted(heights, reverse=True)
        assert len(set(heights)) == 3
