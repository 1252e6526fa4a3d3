"""An abort does not wait for the end of a long step: between its pieces requests end, and come."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engines.embedded.engine import Engine
from engines.embedded.output import Delta
from engines.embedded.request import Request
from engines.layers.native.stack import BLOCK
from tests.engines.embedded.test_random_load import check_idle, check_running
from tests.engines.embedded.tiny import CONFIG, drain, finish, make_engine, random_weights, request, text, write_model

LAYERS = 4
NATIVE = {**CONFIG, "head_dim": 64, "num_hidden_layers": LAYERS}
BROKEN_ID = 700
STEP = 4 * BLOCK
PROMPT = [5 + at % 1_500 for at in range(STEP)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that our kernels compute; of slipstream-code's form, whose kernels other tests have compiled."""
    config = {**NATIVE, "max_position_embeddings": 2 * STEP}
    return write_model(tmp_path_factory.mktemp("models") / "native", config, random_weights(config))


def engine_of(folder: Path, **settings: object) -> Engine:
    given = {"pages": 256, "page_tokens": 16, "dtype": "bfloat16", "max_batch_tokens": STEP, **settings}
    engine = make_engine(folder, **given)  # type: ignore[arg-type]
    assert engine._runner._native is not None
    return engine


class At:
    """Does something before one of a step's pieces, counted from 0; and counts them."""

    def __init__(self, piece: int, act: Callable[[], list[Delta]]) -> None:
        self.pieces = 0
        self.told: list[Delta] = []
        self._piece = piece
        self._act = act

    def __call__(self) -> None:
        if self.pieces == self._piece:
            self.told = self._act()
        self.pieces += 1


@pytest.mark.parametrize("piece", [0, LAYERS - 2, LAYERS - 1, 2 * LAYERS, 4 * LAYERS - 2])
def test_a_prompt_that_nobody_waits_for_is_not_computed_further(folder: Path, piece: int) -> None:
    engine = engine_of(folder)
    engine.submit(request("left", PROMPT))
    at = At(piece, lambda: engine.abort("left"))
    assert engine.step(at) == []
    (delta,) = at.told
    assert delta.finish is not None
    assert (delta.finish.reason, delta.prompt_tokens, delta.completion_tokens) == ("abort", STEP, 0)
    # nothing comes before the first piece
    whole_blocks = (piece + 1) // LAYERS
    assert at.pieces == piece + 1 + (3 - whole_blocks), "the block it is in, and each behind it, are left"
    assert not engine.busy
    assert engine.pages.pinned == 0
    again = finish(engine, request("again", PROMPT, max_tokens=4))["again", 0]
    assert again[-1].cached_tokens == whole_blocks * BLOCK, "what was computed is the next one's"
    alone = finish(engine_of(folder), request("alone", PROMPT, max_tokens=4))["alone", 0]
    assert text(again) == text(alone)
    check_idle(engine)


def test_who_stays_in_the_batch_is_computed_to_the_end(folder: Path) -> None:
    half, other = STEP // 2, [7, *PROMPT]
    engine = engine_of(folder)
    stays = request("stays", other[:half], max_tokens=8)
    engine.submit(stays)
    engine.submit(request("leaves", PROMPT[:half], max_tokens=8))
    at = At(0, lambda: engine.abort("leaves"))
    got = engine.step(at) + [delta for deltas in drain(engine).values() for delta in deltas]
    assert [delta.rid for delta in at.told] == ["leaves"]
    assert {delta.rid for delta in got} == {"stays"}
    assert text(got) == text(finish(engine_of(folder), stays)["stays", 0])
    check_idle(engine)


def test_a_token_picked_for_who_has_left_is_not_counted(folder: Path) -> None:
    engine = engine_of(folder)
    engine.submit(request("generates", [5, 6, 7], max_tokens=100))
    engine.step()
    engine.submit(request("long", PROMPT))
    at = At(2, lambda: engine.abort("generates"))
    assert "generates" not in {delta.rid for delta in engine.step(at)}
    assert [delta.completion_tokens for delta in at.told] == [1]
    assert engine.stats.generation_tokens == 1
    drain(engine)
    check_idle(engine)


def test_choices_that_share_a_prompt_leave_together_while_it_is_computed(folder: Path) -> None:
    engine = engine_of(folder)
    engine.submit(request("r", PROMPT[: 2 * BLOCK], choices=3))
    at = At(1, lambda: engine.abort("r"))
    assert engine.step(at) == []
    assert sorted((delta.index, delta.completion_tokens) for delta in at.told) == [(0, 0), (1, 0), (2, 0)]
    assert not engine.busy
    check_idle(engine)


@pytest.mark.parametrize("piece", [1, LAYERS - 1, 2 * LAYERS - 2])
def test_a_prompt_that_is_left_leaves_no_numbers_that_are_not_finite(tmp_path: Path, piece: int) -> None:
    config = {**NATIVE, "max_position_embeddings": 2 * STEP, "tie_word_embeddings": False}
    weights = random_weights(config)
    weights["model.embed_tokens.weight"][BROKEN_ID] = torch.nan
    engine = engine_of(write_model(tmp_path / "broken", config, weights))
    engine.submit(request("left", [5, BROKEN_ID, *PROMPT[: 2 * BLOCK - 2]], choices=3))
    at = At(piece, lambda: engine.abort("left"))
    assert engine.step(at) == []
    assert len(at.told) == 3
    assert engine.store.pages.isfinite().all(), "the next owner of a page may fill only a part of it"
    assert engine.pages.free == engine.pages.total, "none of it is cached"


def test_a_request_that_comes_within_a_step_runs_in_the_next_and_one_that_left_at_once_never_does(folder: Path) -> None:
    engine = engine_of(folder)
    engine.submit(request("first", PROMPT, max_tokens=1))

    def comes_and_goes() -> list[Delta]:
        for rid in ("comes", "goes"):
            engine.submit(request(rid, [5, 6, 7], max_tokens=1))
        return engine.abort("goes")

    at = At(3, comes_and_goes)
    assert {delta.rid for delta in engine.step(at)} <= {"first"}
    assert [(delta.rid, delta.prompt_tokens) for delta in at.told] == [("goes", 0)]
    assert {rid for rid, _ in drain(engine)} == {"comes"}
    check_idle(engine)


@pytest.mark.parametrize("seed", range(3))
def test_random_requests_that_come_and_go_at_any_piece_leave_nothing_and_change_nobody(folder: Path, seed: int) -> None:
    source = random.Random(seed)
    engine = engine_of(folder, pages=96, max_running=6, max_batch_tokens=2 * BLOCK, output_reserve=0.2)
    stems = [[source.randrange(5, 2048) for _ in range(300)] for _ in range(3)]
    sent: dict[str, Request] = {}
    ended: dict[str, list[Delta]] = {}

    def meddle() -> None:
        if len(sent) < 60 and source.random() < 0.2:
            prompt = [*source.choice(stems)[: source.randrange(1, 300)], source.randrange(5, 2048)]
            # a penalty brings a tensor along
            sampling = source.choice(
                ({}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.5, "logit_bias": ((7, 2.0),)})
            )
            choices, most = source.choice((1, 1, 2)), source.randrange(1, 12)
            one = request(f"r{len(sent)}.", prompt, max_tokens=most, choices=choices, **sampling)
            sent[one.rid] = one
            engine.submit(one)
        if sent and source.random() < 0.1:
            note(engine.abort(source.choice(list(sent))))

    def note(deltas: list[Delta]) -> None:
        for delta in deltas:
            own = ended.setdefault(f"{delta.rid}{delta.index}", [])
            assert not own or own[-1].finish is None, "every choice ends once"
            own.append(delta)

    while len(sent) < 60 or engine.busy:
        meddle()
        note(engine.step(meddle))
        check_running(engine)
    assert len(ended) == sum(one.choices for one in sent.values())
    reasons = {own[-1].finish.reason for own in ended.values() if own[-1].finish is not None}
    assert {"abort", "length"} <= reasons
    check_idle(engine)
    plain = engine_of(folder)
    for rid, one in sent.items():
        expected = text(finish(plain, one)[rid, 0])
        got = ended[f"{rid}0"]
        assert expected.startswith(text(got))
        if got[-1].finish is not None and got[-1].finish.reason != "abort":
            assert text(got) == expected
