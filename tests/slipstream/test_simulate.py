"""`slipstream tools simulate` end to end, on small traffic."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from contracts.errors import ConfigError
from slipstream.commands.simulate import simulate

LINE = '{{"timestamp":{at},"input_length":{tokens},"output_length":20,"hash_ids":[{ids}]}}\n'


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "small.jsonl"
    lines = (
        LINE.format(at=at * 400, tokens=1_600, ids=",".join(str(each) for each in (0, at % 7 + 1, at + 100)))
        for at in range(150)
    )
    path.write_text("".join(lines))
    return path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(simulate, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_trace_gives_a_table_with_a_line_per_policy_and_load_and_a_picture(trace: Path, tmp_path: Path) -> None:
    picture = tmp_path / "curves.svg"
    given = ["--trace", str(trace), "--replicas", "2", "--load", "1,4", "--plot", str(picture)]
    words = [*given, "--policy", "smg", "--policy", "core:least_load"]
    result = CliRunner().invoke(simulate, words, catch_exceptions=False)
    assert "load, goodput: requests/s per replica, not of the fleet" in result.stderr
    assert "the fleet of 2 replicas: 2 times the load and the goodput of the table" in result.stderr
    lines = result.stdout.split("\n\n", 1)[1].splitlines()
    assert [line.split()[:2] for line in lines[1:] if line] == [
        ["1", "smg"], ["1", "core:least_load"], ["4", "smg"], ["4", "core:least_load"],
    ]  # fmt: skip
    groups = ElementTree.parse(picture).iterfind(".//{http://www.w3.org/2000/svg}g")
    curves = [group.get("id", "") for group in groups if "/" in group.get("id", "")]
    assert len(curves) == len(set(curves)) == 4 * 2


def test_json_holds_every_run(trace: Path) -> None:
    rows = msgspec.json.decode(
        run("--trace", str(trace), "--replicas", "2", "--load", "2", "--seeds", "2", "--policy", "dynamo", "--json")
    )
    assert [(row["policy"], row["load"], len(row["runs"])) for row in rows] == [("dynamo", 2.0, 2)]
    assert all(run["requests"] > 0 and 0 < run["hit_rate"] < 1 for run in rows[0]["runs"])


def test_a_recorded_trace_is_met_once_at_its_own_times(trace: Path) -> None:
    recorded = ("--trace", str(trace), "--recorded", "--seeds", "2", "--policy", "ours", "--json")
    counted = 150 - 30  # behind the warm-up
    for replicas in (1, 9):
        [row] = msgspec.json.decode(run(*recorded, "--replicas", str(replicas)))
        assert [one["requests"] for one in row["runs"]] == [counted] * 2
        assert all(one["offered"] * replicas == pytest.approx(2.5, rel=0.01) for one in row["runs"])
    with pytest.raises(ConfigError, match="--trace"):
        run("--recorded")


def test_goodput_is_measured_by_the_objectives_given(trace: Path) -> None:
    def kept(*objectives: str) -> list[tuple[int, int]]:
        given = [part for each in objectives for part in ("--objective", each)]
        told = run("--trace", str(trace), "--recorded", "--replicas", "2", "--policy", "ours", "--json", *given)
        (row,) = msgspec.json.decode(told)
        return [(each["requests"], each["kept"]) for each in row["runs"][0]["length_classes"]]

    assert kept(":100000:0") == [(120, 120)]
    assert kept(":0.001:0") == [(120, 0)]
    assert kept(":100000:0.001") == [(120, 0)]
    assert kept("1000:1:1", ":100000:1000") == [(0, 0), (120, 120)]
    for wrong in (("x",), ("10:1",), ("10:0:1",), ("0:1:1",), ("10:1:1", "10:2:2")):
        with pytest.raises(ConfigError, match="--objective"):
            kept(*wrong)


def test_made_up_conversations_and_part_of_a_day() -> None:
    made_up = run("--minutes", "0.5", "--replicas", "2", "--load", "2", "--policy", "smg")
    day = run("--day", "3000", "--hours", "20.9", "21.0", "--replicas", "1", "--policy", "smg", "--wide")
    assert all(len(each.split("\n\n", 1)[1].splitlines()) == 2 for each in (made_up, day))
    offered, _, goodput, interval = day.splitlines()[-1].split()[:4]
    assert float(offered) >= float(goodput) > 0, "a day has no given load: what came is shown"
    assert interval == "-", "one seed has no spread"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--load", "quick"],
        ["--load", "0"],
        ["--load", "inf"],
        ["--load", "nan"],
        ["--policy", "nobody"],
        ["--node", "toaster"],
        ["--sessions", "--day", "100"],
        ["--day", "100", "--hours", "22", "21"],
        ["--day", "1e12"],
        ["--plot", "/nowhere/at/all.svg"],
        ["--plot", "curves.png"],
        ["--trace", "/nowhere/at/all"],
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: list[str]) -> None:
    with pytest.raises(ConfigError):
        CliRunner().invoke(simulate, ["--minutes", "0.1", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--replicas", "0"), ("--seeds", "0"), ("--day", "0"), ("--minutes", "-1"), ("--spread", "1"), ("--day", "much")],
)
def test_numbers_out_of_range_are_refused_with_the_option(option: str, value: str) -> None:
    result = CliRunner().invoke(simulate, [option, value])
    assert result.exit_code == 2
    assert f"'{option}'" in result.output
