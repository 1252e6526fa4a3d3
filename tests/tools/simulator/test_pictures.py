"""Tables and pictures say what the runs said."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import msgspec
import pytest

from tools.simulator.chart import Panel, chart, day_chart, svg
from tools.simulator.config import SimulatorConfig
from tools.simulator.course import SPANS
from tools.simulator.sessions import SessionsConfig, sessions
from tools.simulator.sweep import Row, sweep
from tools.simulator.table import conclusion, table

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


def test_what_is_kept_by_length_and_by_token_adds_up_to_what_is_kept(rows: list[Row]) -> None:
    for row in rows:
        for run in row.runs:
            assert sum(each.requests for each in run.length_classes) == run.requests
            kept = sum(each.kept for each in run.length_classes)
            assert kept / run.requests == pytest.approx(run.goodput / run.offered)
            assert 0 <= run.kept_prompt_tokens <= 1
            assert 0 <= run.kept_output_tokens <= 1
    head, line = table(rows, wide=True).splitlines()[:2]
    assert head.split()[-4:] == ["<=4k", "<=16k", "<=64k", ">64k"]
    shown = [float(part.rstrip("%")) / 100 for part in line.split()[-7:]]
    row = rows[0]
    assert shown[:3] == pytest.approx(
        [row.kept, row.mean("kept_prompt_tokens"), row.mean("kept_output_tokens")], abs=1e-3
    )
    assert shown[3:] == pytest.approx(row.kept_by_length, abs=1e-3)


def curves_of(picture: str) -> dict[str, list[tuple[float, float]]]:
    """Every curve's points on the paper, by `panel/name`."""
    found = {}
    for group in ElementTree.fromstring(picture).iterfind(".//svg:g", NAMESPACE):
        if "/" in (name := group.get("id", "")):
            path = group.find("svg:path", NAMESPACE)
            assert path is not None
            numbers = [float(part) for part in path.get("d", "").split() if part not in "MLz"]
            found[name] = list(zip(numbers[::2], numbers[1::2], strict=True))
    return found


def texts_of(picture: str) -> set[str]:
    return {
        "".join(text.itertext()).strip() for text in ElementTree.fromstring(picture).iterfind(".//svg:text", NAMESPACE)
    }


def test_the_picture_is_xml_with_a_curve_per_policy_and_panel(rows: list[Row]) -> None:
    picture = chart("two <nodes> & $more$", rows)
    assert len(curves_of(picture)) == 4 * 2
    assert "two <nodes> & $more$" in texts_of(picture)
    assert chart("two <nodes> & $more$", rows) == picture, "the same curves give the same file"


def test_a_days_picture_has_a_curve_per_policy_over_its_hours_and_what_was_offered(rows: list[Row]) -> None:
    one_load = [row for row in rows if row.load == 4.0]
    picture = day_chart("a day", one_load, 20.5)
    curves = curves_of(picture)
    assert len(curves) == 4 * 2 + 1
    linear = {name: curve for name, curve in curves.items() if not name.startswith("TTFT")}
    assert {len(curve) for curve in linear.values()} == {SPANS}
    assert "hour of the day" in texts_of(picture)


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


def test_higher_values_are_drawn_higher_on_both_scales() -> None:
    for logarithmic in (False, True):
        panel = Panel("p", "x", "y", {"a": [(1, 1.0), (2, 30.0), (3, 900.0)]}, logarithmic)
        (curve,) = curves_of(svg("t", [panel])).values()
        heights = [y for _, y in curve]
        assert heights == sorted(heights, reverse=True)
        assert len(set(heights)) == 3


def test_the_conclusion_names_the_best_first_and_says_where_none_is(rows: list[Row]) -> None:
    last = [row for row in rows if row.load == 4]
    best, other = sorted(last, key=lambda row: (-row.kept, row.mean("ttft_p99_ms")))
    told = conclusion(rows)
    assert told.startswith(f"At 4 requests/s a replica, the best first: {best.policy} keeps {best.kept:.1%} ")
    assert f"; {other.policy} keeps {other.kept:.1%} " in told
    alike = conclusion([best, msgspec.structs.replace(best, policy="its twin")])
    assert alike.endswith("a higher --load separates them.")
