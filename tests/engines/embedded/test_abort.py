"""An abort takes effect before the next step, and counts exactly."""

from __future__ import annotations

from pathlib import Path

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
