"""An abort takes effect before the next step, and counts exactly."""

from __future__ import annotations

from pathlib import Path

from engines.embedded.live import LiveRequest
from tests.engines.embedded.tiny import make_engine, request


def test_no_token_is_generated_after_an_abort(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    engine.submit(request("req_1", [5, 6, 7], max_tokens=100))
    for _ in range(4):
        engine.step()
    (delta,) = engine.abort("req_1")
    assert delta.finish is not None
    assert delta.finish.reason == "abort"
    assert delta.completion_tokens == 4
    assert engine.pages.pinned == 0
    assert engine.step() == []
    assert engine.stats.generation_tokens == 4


def test_all_choices_of_a_request_are_aborted_running_or_waiting(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_running=2)
    engine.submit(request("req_1", [5, 6, 7], choices=4))
    engine.step()
    assert sorted(delta.index for delta in engine.abort("req_1")) == [0, 1, 2, 3]
    assert not engine.busy


def test_a_prefix_aborts_every_id_that_starts_with_it_and_exact_only_one(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    for rid in ("req_1", "req_12", "other"):
        engine.submit(request(rid, [5, 6]))
    engine.step()
    assert [delta.rid for delta in engine.abort("req_1")] == ["req_1"]
    assert [delta.rid for delta in engine.abort("req_", prefix=True)] == ["req_12"]
    assert [delta.rid for delta in engine.abort("", prefix=True)] == ["other"]


def test_an_unknown_id_is_no_error(tiny_model: Path) -> None:
    assert make_engine(tiny_model).abort("nobody") == []


def test_a_request_aborted_while_waiting_used_nothing(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_running=1)
    engine.submit(request("first", [5, 6]))
    engine.submit(request("second", [5, 6]))
    engine.step()
    (delta,) = engine.abort("second")
    assert delta.completion_tokens == 0
    assert delta.prompt_tokens == 0


def test_a_prompt_is_counted_once_one_of_its_choices_was_admitted(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_running=1)
    asked = request("r", [5, 6], choices=3)
    engine.submit(asked)
    engine.step()
    live = LiveRequest(asked)
    for delta in engine.abort("r"):
        live.put(delta)
    assert live.finished
    assert live.usage().prompt_tokens == 2


def test_prompts_of_a_request_that_was_never_admitted_are_not_counted(tiny_model: Path) -> None:
    engine = make_engine(tiny_model, max_running=1)
    engine.submit(request("first", [5, 6]))
    asked = request("r", [5, 6], choices=2)
    engine.submit(asked)
    engine.step()
    live = LiveRequest(asked)
    assert live.usage().prompt_tokens == 2, "while it may still be admitted"
    for delta in engine.abort("r"):
        live.put(delta)
    assert live.usage().total_tokens == 0
