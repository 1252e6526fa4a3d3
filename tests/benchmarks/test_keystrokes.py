"""What the replay of typing sessions types, and how it judges what came of it."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from benchmarks.keystroke_sessions.editor import Asked
from benchmarks.keystroke_sessions.edits import Edit, Kind, keys, places
from benchmarks.keystroke_sessions.edits import load as recorded_edits
from benchmarks.keystroke_sessions.engine_load import EngineLoad, load, numbers
from benchmarks.keystroke_sessions.figures import STEP_TOKENS, figures, judged, quantile
from benchmarks.keystroke_sessions.picture import draw
from benchmarks.keystroke_sessions.sites import CLIENT_WINDOW, LEVERS, Row, _model, everything_on
from benchmarks.keystrokes import missed
from contracts.fill_in_the_middle import FillInTheMiddle
from engines.embedded.config import EngineConfig
from engines.embedded.stats import Stats
from speculative.config import SpeculationConfig
from tests.deployment import ROOT

EDITS = recorded_edits()[::4]


def edit(before: str, after: str) -> Edit:
    return Edit("", "file.py", before, after)


@pytest.mark.parametrize("recorded", EDITS, ids=lambda one: str(one.path))
def test_the_last_key_of_an_edit_leaves_what_its_commit_left_above_the_cursor(recorded: Edit) -> None:
    pressed = list(keys(recorded, random.Random(1), 1 << 30))
    assert recorded.after.startswith(pressed[-1].prefix)
    assert pressed[0].kind is Kind.COLD
    assert sum(key.kind is Kind.JUMP for key in pressed) == len(places(recorded)) - 1
    for before, after in itertools.pairwise(pressed):
        if after.kind is not Kind.JUMP:
            assert after.prefix.startswith(before.prefix)
            assert after.suffix == before.suffix


def test_a_new_line_is_opened_with_enter_and_comes_with_its_indentation() -> None:
    pressed = list(keys(edit("def f():\n    pass\n", "def f():\n    x = 1\n    return x\n"), random.Random(1), 99))
    assert (pressed[0].prefix, pressed[0].suffix) == ("def f():\n    x", "\n")
    entered = next(key for key in pressed if key.kind is Kind.LINE)
    assert entered.prefix == "def f():\n    x = 1\n    "
    assert pressed[-1].prefix + pressed[-1].suffix == "def f():\n    x = 1\n    return x\n"


def test_a_change_within_a_line_is_typed_within_it_and_the_next_place_is_a_jump() -> None:
    pressed = list(keys(edit("a = old\nb\nc = old\n", "a = new\nb\nc = new\n"), random.Random(1), 99))
    assert [(key.kind, key.prefix, key.suffix) for key in pressed[::3]] == [
        (Kind.COLD, "a = n", "\nb\nc = old\n"),
        (Kind.JUMP, "a = new\nb\nc = n", "\n"),
    ]


def asked(name: str, kind: Kind, ttft_s: float | None = None, closed_at: float | None = None) -> Asked:
    return Asked(name, kind, 0.0, first_at=ttft_s, closed_at=closed_at, status=200)


def row(name: str, again: int, finish: str = "complete", closed_at: float = 0.0) -> Row:
    return Row(name, 5_000, 5_000 - again, finish, closed_at)


def test_figures_are_of_the_keys_they_name() -> None:
    found = figures(
        [
            asked("cold", Kind.COLD, 4.0),
            asked("key", Kind.TYPED, 0.1),
            asked("line", Kind.LINE, 0.3),
            asked("jump", Kind.JUMP, 2.0),
            asked("left", Kind.TYPED, closed_at=7.0),
            asked("never ran", Kind.TYPED, closed_at=8.0),
        ],
        {
            one.client_request_id: one
            for one in (
                row("cold", 5_000), row("key", 1), row("line", 20), row("jump", 4_000),
                row("left", 3, "client_gone", 7.012),
            )
        },
    )  # fmt: skip
    assert (found.prefilled_again_p50, found.prefilled_again_p99) == (3, 20)
    assert (found.warm_ttft_p50_ms, found.cold_ttft_p50_ms, found.jump_ttft_p50_ms) == (100.0, 4_000.0, 2_000.0)
    assert (found.cancels, found.cancel_p99_ms, found.jumps) == (1, 12.0, 1)
    assert found.superseded_share == pytest.approx(2 / 6, abs=1e-3)
    assert sum(found.histogram) == 3
    assert missed(found) == []


def test_errors_and_lost_connections_are_refusals() -> None:
    lost = msgspec.structs.replace(asked("lost", Kind.TYPED), status=0, refusal="connection lost")
    found = figures([asked("key", Kind.TYPED, 0.1), lost], {"key": row("key", 1)})
    assert (found.failed, found.refused_share) == (1, 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prefilled_again_p50", 17), ("prefilled_again_p99", 301), ("cold_ttft_p50_ms", 1_999.0),
        ("cancel_p99_ms", 20.1),
    ],
)  # fmt: skip
def test_a_goal_that_is_missed_is_told(name: str, value: float) -> None:
    good = figures([asked("cold", Kind.COLD, 4.0), asked("key", Kind.TYPED, 0.1)], {"key": row("key", 1)})
    assert missed(good) == []
    assert len(missed(msgspec.structs.replace(good, **{name: value}))) == 1


def test_an_abort_may_wait_for_a_step_as_long_as_steps_are() -> None:
    found = figures([asked("cold", Kind.COLD, 4.0), asked("key", Kind.TYPED, 0.1)], {"key": row("key", 1)})
    slow = msgspec.structs.replace(found, cancel_p99_ms=150.0, step_p99_ms=200.0)
    assert slow.cancel_p99_steps == 0.75
    assert missed(slow) == []
    assert len(missed(msgspec.structs.replace(slow, step_p99_ms=149.0))) == 1


def test_what_the_engines_did_is_what_their_numbers_grew_by() -> None:
    stats = Stats()
    registry = CollectorRegistry(auto_describe=False)

    class Engine(Collector):
        def collect(self) -> Iterator[Metric]:
            steps = HistogramMetricFamily("sglang:step_seconds", "", labels=["model_name"])
            steps.add_metric(["m"], stats.step_s.buckets(), stats.step_s.total)
            evicted = CounterMetricFamily("sglang:evicted_tokens", "", labels=["model_name"])
            evicted.add_metric(["m"], 16 * stats.steps)
            held = GaugeMetricFamily("sglang:max_total_num_tokens", "", labels=["model_name"])
            held.add_metric(["m"], 1_000)
            return iter((steps, evicted, held))

    def reading() -> dict[str, float]:
        return numbers(generate_latest(registry).decode())

    registry.register(Engine())
    stats.count_step(0.0, 2.0)  # before: of no account
    before = reading()
    for _ in range(99):
        stats.count_step(0.0, 0.001)
    found = load([before], [reading()], wall_s=1.0)
    assert found == EngineLoad(step_p99_ms=1.1, busy_share=0.099, kv_tokens=1_000, evicted_tokens=16 * 99)
    stats.count_step(0.0, 0.2)
    stats.count_step(0.0, 0.2)
    found = load([before, before], [reading(), before], wall_s=1.0)
    assert found.step_p99_ms is not None
    assert 200 <= found.step_p99_ms < 260
    assert found.kv_tokens == 2_000
    assert found.busy_share == pytest.approx(0.2495, abs=1e-3)
    assert load([before], [before], wall_s=1.0).step_p99_ms is None


def test_a_quantile_is_a_value_that_was_there() -> None:
    assert quantile([], 0.5) is None
    assert [quantile([3, 1, 2, 4], part) for part in (0.0, 0.5, 0.75, 0.99, 1.0)] == [1, 2, 3, 4, 4]


def test_the_picture_has_a_line_for_each_replay_and_is_well_formed() -> None:
    found = figures([asked("key", Kind.TYPED, 0.1)], {"key": row("key", 1)})
    nothing = figures([], {})
    drawn = ElementTree.fromstring(draw({"slipstream": found, "without layout": found, "nothing": nothing}))
    assert len([one for one in drawn.iter() if one.tag.endswith("polyline")]) == 2


def differences(one: msgspec.Struct, other: msgspec.Struct) -> dict[str, object]:
    """The other's fields that are not the one's."""
    fields = {name: getattr(other, name) for name in other.__struct_fields__}
    return {name: value for name, value in fields.items() if value != getattr(one, name)}


@pytest.mark.parametrize(
    ("lever", "of_model", "of_setup"),
    [
        ("grid", {"fim": FillInTheMiddle(window=False, min_confidence=0.0)}, {"client_window": CLIENT_WINDOW}),
        ("affinity", {}, {"policy": "round_robin"}),
        ("supersession", {"fim": FillInTheMiddle(supersede=False, min_confidence=0.0)}, {}),
        ("reuse", {"fim": FillInTheMiddle(reuse=False, min_confidence=0.0)}, {}),
        ("speculation", {}, {"speculation": SpeculationConfig(method="off")}),
    ],
)
def test_a_lever_switches_one_thing_off_that_is_on_without_it(
    lever: str, of_model: dict[str, object], of_setup: dict[str, object], tmp_path: Path
) -> None:
    on = everything_on()
    off = LEVERS[lever](on, tmp_path)
    assert differences(on.model, off.model) == of_model
    assert differences(on, off) == of_setup | ({"model": off.model} if of_model else {})
    assert off.environment(["http://x"]) != on.environment(["http://x"]) or off.engine != on.engine


def test_without_the_layout_engine_and_gateway_read_a_copy_of_the_models_folder(tmp_path: Path) -> None:
    off = LEVERS["layout"](everything_on(), tmp_path)
    assert off.engine["model"] == off.model.tokenizer == str(off.folder)
    settings = json.loads((off.folder / "tokenizer_config.json").read_text())
    assert settings["fim_order"] == "psm"
    assert "fim_typed_line" not in settings


def test_engines_draft_as_those_that_up_starts() -> None:
    config = msgspec.convert(everything_on().engine, EngineConfig)
    assert config.speculation == SpeculationConfig(method="ngram")


def test_context_and_memory_are_of_all_engines() -> None:
    setup = everything_on(2_048, 1 << 24)
    config = msgspec.convert(setup.engine, EngineConfig)
    assert LEVERS["grid"](setup, Path()).client_window == (3_600, 1_200)
    assert (config.context_tokens, setup.model.context_tokens, config.kv.budget_bytes) == (2_048, 2_048, 1 << 24)


def test_a_switch_that_models_do_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="fim_renamed"):
        _model(everything_on(), fim_renamed=False)


def test_a_key_in_a_file_that_no_engine_has_read_computes_nothing_again() -> None:
    refused = msgspec.structs.replace(asked("refused", Kind.COLD), file="refused", status=503, refusal="overloaded")
    first = msgspec.structs.replace(asked("first", Kind.TYPED, 4.0), file="refused", sent_at=1.0)
    second = msgspec.structs.replace(asked("second", Kind.TYPED, 2.125), file="refused", sent_at=2.0)
    found = figures([refused, first, second], {"first": row("first", 5_000), "second": row("second", 7)})
    assert (found.prefilled_again_p99, found.cold_ttft_p50_ms, found.warm_ttft_p50_ms) == (7, 3_000.0, 125.0)
    assert sum(found.histogram) == 1


def test_of_a_file_that_was_read_in_part_only_that_part_is_computed_again() -> None:
    first = msgspec.structs.replace(asked("first", Kind.COLD), file="first")
    keys = [
        msgspec.structs.replace(asked(f"key{at}", Kind.TYPED, at + 4.0), file="first", sent_at=at)
        for at in (1.0, 2.0, 3.0)
    ]
    moved, reads, typed = keys
    rows = {
        "first": Row("first", 512 + STEP_TOKENS, 0, "complete", 0.5, superseded=True),
        moved.id: Row(moved.id, 768 + STEP_TOKENS, 0, "complete", 1.5, superseded=True),
        reads.id: Row(reads.id, 5_000, 768, "complete", 2.5, completion_tokens=3),
        typed.id: row(typed.id, 2),
    }
    found = figures([first, *keys], rows)
    assert sorted(key.again for key in judged([first, *keys], rows) if key.again is not None) == [0, 2, 512]
    assert found.prefilled_again_p99 == 512, "all that the first had read before its last step"
    assert sum(found.histogram) == 3
    assert found.warm_ttft_p50_ms == 4_000.0, "the one behind what was read to its end"


@pytest.mark.nightly
@pytest.mark.timeout(1_500)
def test_a_typing_session_keeps_the_goals_and_who_leaves_frees_the_engine_within_a_step() -> None:
    command = "-m benchmarks.keystrokes --users 2 --files 1 --keys 25 --check".split()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["cancel_p99_ms"] is not None, "nobody left: nothing was measured"
