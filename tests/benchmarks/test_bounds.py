"""A bound that the documentation promises can be missed, and `--check` then says so."""

from __future__ import annotations

import copy

import pytest

from benchmarks import placement, simulator_validation
from benchmarks.bounds import tell
from benchmarks.simulator_validation import CRITERION, JUDGED
from tools.simulator.arrival import Arrival
from tools.simulator.competitors import OURS
from tools.simulator.config import SimulatorConfig
from tools.simulator.outcome import Outcome
from tools.simulator.replica import ModelledReplica
from tools.simulator.summary import Summary, summarize
from tools.simulator.sweep import Row

ERRORS = {load: dict.fromkeys((*names, "ttft_p99_ms"), 0.02) for load, names in JUDGED.items()}


def test_every_judged_error_within_the_criterion_is_no_miss() -> None:
    at_the_edge = {load: dict.fromkeys(names, -CRITERION) for load, names in JUDGED.items()}
    assert simulator_validation.missed(ERRORS) == simulator_validation.missed(at_the_edge) == []


@pytest.mark.parametrize("error", [CRITERION + 0.001, -0.2, float("nan")])
@pytest.mark.parametrize(("load", "name"), [(load, name) for load, names in JUDGED.items() for name in names])
def test_one_judged_error_beyond_it_is_told(load: float, name: str, error: float) -> None:
    errors = copy.deepcopy(ERRORS)
    errors[load][name] = error
    (told,) = simulator_validation.missed(errors)
    assert told.startswith(f"load {load:g}: {name} is off by ")


def test_what_is_not_judged_is_not_told() -> None:
    errors = copy.deepcopy(ERRORS)
    for each in errors.values():
        each["ttft_p99_ms"] = 0.5
    assert simulator_validation.missed(errors) == []


def run(kept: int) -> Summary:
    """So many of ten requests kept; the others refused."""
    arrivals = [Arrival(float(at), 1_000, 100) for at in range(10)]
    outcomes = [
        Outcome(one, asked_at=one.at_s, granted_at=one.at_s, first_token_at=one.at_s + 0.1, ended_at=one.at_s + 1.1)
        if at < kept
        else Outcome(one, asked_at=one.at_s, refused_at=one.at_s, code="overloaded")
        for at, one in enumerate(arrivals)
    ]
    config = SimulatorConfig(replicas=1, warm_up=0.0)
    return summarize(config, outcomes, [ModelledReplica(0, config)])


def rows(ours: dict[float, int], smg: dict[float, int]) -> list[Row]:
    """By load, what each kept."""
    return [Row(name, load, (run(kept),)) for name, each in ((OURS, ours), ("smg", smg)) for load, kept in each.items()]


def test_placement_that_goes_further_and_loses_nowhere_misses_nothing() -> None:
    assert placement.missed(rows({1.0: 10, 2.0: 10, 3.0: 5}, {1.0: 10, 2.0: 4, 3.0: 0})) == []


def test_placement_that_loses_at_one_load_is_told() -> None:
    (told,) = placement.missed(rows({1.0: 10, 2.0: 10, 3.0: 5}, {1.0: 10, 2.0: 4, 3.0: 6}))
    assert told.startswith("load 3: goodput ")
    assert told.endswith(" of smg")


def test_placement_that_goes_hardly_further_is_told() -> None:
    (told,) = placement.missed(rows({1.0: 10, 2.0: 8}, {1.0: 10, 2.0: 8}))
    assert told == "nine in ten requests served as promised up to 1.50, less than 1.3 x 1.50 (smg)"


def test_without_a_rival_nothing_is_shown() -> None:
    assert placement.missed(rows({1.0: 10}, {}))
    assert placement.missed(rows({}, {1.0: 10}))


def test_a_miss_is_an_error_only_where_it_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    tell(["late by a second"], check=False)
    tell([], check=True)
    with pytest.raises(SystemExit) as ended:
        tell(["late by a second"], check=True)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "MISSED: late by a second\n" * 2
