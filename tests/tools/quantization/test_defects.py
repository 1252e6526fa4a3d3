"""Seeded defects are what they say, and the sound model is the one that is served."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig
from engines.embedded.models.registry import load_model
from engines.embedded.request import Request, Sampling
from engines.layers.int8 import Int8Linear
from engines.tokenizer.tokenizer import Tokenizer
from evals.slices.item import Item, assistant, user
from evals.slices.registry import SLICES, find
from evals.slices.split import Split
from tools.quantization import defects
from tools.quantization.asking import Asked
from tools.quantization.defects import SEEDED, SOUND, Defect, conversation

CHAT = Path(__file__).parents[3] / "models" / "slipstream-chat"
TALK = (user("My name is Marie."), assistant("Nice to meet you, Marie!"), user("What is my name?"))
ITEMS = 12


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(CHAT)


def items(name: str, count: int = ITEMS) -> list[Item]:
    return [find(name).item(seed, Split.HELD_OUT) for seed in range(count)]


def right(asked: Asked, of: list[Item]) -> float:
    return sum(item.score(answer) for item, answer in zip(of, asked.answers(of), strict=True))


@pytest.fixture(scope="module")
def sound() -> Asked:
    return Asked(CHAT)


def test_what_is_asked_here_is_what_the_engine_serves(sound: Asked, tokenizer: Tokenizer) -> None:
    some = items("lists", 2) + items("multi-turn", 1)
    engine = build_engine(EngineConfig(model=str(CHAT)), 4608, tokenizer)
    for item, answer in zip(some, sound.answers(some), strict=True):
        sampling = Sampling(max_tokens=item.max_tokens, temperature=0, stop_ids=tokenizer.end_ids)
        engine.submit(Request("one", (tuple(conversation(tokenizer, item.messages)),), sampling))
        text = ""
        while engine.busy:
            text += "".join(delta.text for delta in engine.step())
        assert text == answer


def test_drawn_answers_depend_on_the_seed_alone(sound: Asked) -> None:
    some = items("arithmetic", 6)
    first = sound.answers(some, temperature=5.0, seed=1)
    assert sound.answers(some, temperature=5.0, seed=1) == first
    assert sound.answers(some, temperature=5.0, seed=2) != first


def test_a_question_that_fills_the_context_is_refused(sound: Asked) -> None:
    long = items("facts", 1)[0]
    with pytest.raises(ValueError, match="the context is 4608"):
        sound.answers([type(long)(**{**vars(long), "messages": (user("word " * 5000),)})])


def test_names_are_unique_and_slices_exist() -> None:
    made = defects.seeded()
    assert len({one.name for one in made}) == len(made) == len(SEEDED)
    known = {one.name for one in SLICES}
    assert all(one.caught_by and set(one.caught_by) <= known for one in made)


@pytest.mark.parametrize("defect", defects.seeded(), ids=lambda one: one.name)
def test_the_slice_that_is_named_sees_the_defect(defect: Defect, sound: Asked) -> None:
    of = items(defect.caught_by[0])
    assert right(Asked(CHAT, defect), of) < right(sound, of)


def test_a_truncated_prompt_keeps_its_beginning_token_and_its_end(tokenizer: Tokenizer) -> None:
    whole = conversation(tokenizer, TALK)
    cut = defects.truncated_context(10).prompt(tokenizer, TALK)
    assert len(cut) == 10
    leading = len(tokenizer.leading_ids)
    assert cut[:leading] == whole[:leading]
    assert cut[leading:] == whole[len(whole) - 10 + leading :]
    assert defects.truncated_context(len(whole)).prompt(tokenizer, TALK) == whole


def test_a_wrong_template_has_no_control_tokens_and_the_last_turn_no_others(tokenizer: Tokenizer) -> None:
    ids = defects.wrong_template().prompt(tokenizer, TALK)
    assert tokenizer.control_ids.isdisjoint(ids[len(tokenizer.leading_ids) :])
    assert tokenizer.decode(ids).startswith("User: My name is Marie.\nAssistant: Nice")
    assert defects.last_turn_only().prompt(tokenizer, TALK) == conversation(tokenizer, TALK[-1:])


def test_an_early_stop_loses_tokens_and_nothing_else(tokenizer: Tokenizer) -> None:
    ids = tokenizer.plain_ids("The capital of Norway is Oslo.")
    stream = defects.early_stop(2).text_stream(tokenizer.text_stream)
    assert "".join(map(stream.step, ids)) + stream.flush() == tokenizer.decode(ids[:-2])


def test_late_stops_are_off_by_one() -> None:
    assert defects.late_stop().end_ids(frozenset({0, 3})) == {1, 4}


def test_rounded_keys_and_values_have_few_steps() -> None:
    heads = torch.randn(5, 2, 4, 8, generator=torch.Generator().manual_seed(1))
    rounding = defects.rounded_keys_and_values(3).kept
    assert rounding is not None
    assert all(len(set(row.tolist())) <= 7 for row in rounding(heads).flatten(0, 1).flatten(1))
    torch.testing.assert_close(rounding(heads).abs().amax((2, 3)), heads.abs().amax((2, 3)))


def test_int8_is_taken_apart_as_the_engine_rounds_it() -> None:
    weight = torch.randn(32, 48, generator=torch.Generator().manual_seed(2))
    steps, scales = defects.int8_of(weight)
    x = torch.randn(3, 48, generator=torch.Generator().manual_seed(3)).bfloat16().float()
    engine = Int8Linear(weight, native=True)(x)
    torch.testing.assert_close(engine, x @ (steps * scales[:, None]).T, rtol=0, atol=5e-3)


def test_broken_int8_differs_in_the_rows_it_names() -> None:
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(4))
    steps, scales = defects.int8_of(weight)
    lost, wrong, shifted = (
        make().weights for make in (defects.lost_scales, defects.scales_of_wrong_axis, defects.shifted_scales)
    )
    assert lost
    assert wrong
    assert shifted
    assert torch.equal(lost(weight)[0], steps[0])
    assert torch.equal(lost(weight)[1:], (steps * scales[:, None])[1:])
    assert torch.equal(wrong(weight)[:, 3], steps[:, 3] * scales[3])
    assert torch.equal(shifted(weight)[3], steps[3] * scales[2])
    with pytest.raises(ValueError, match="fewer scales than columns"):
        wrong(weight[:4])


def test_only_the_layers_that_are_named_are_scaled() -> None:
    seen: dict[str, torch.Tensor] = {}

    class Noted:
        wide = False

        def make(self, name: str, weight: torch.Tensor, bias: torch.Tensor | None) -> Int8Linear:
            seen[name] = weight
            return Int8Linear(weight, bias)

    made = defects.scaled_layer(2.0, "layers.1.*").linears(Noted())
    for name in ("layers.1.qkv", "layers.0.qkv"):
        made.make(name, torch.ones(16, 16), None)
    assert torch.equal(seen["layers.1.qkv"], torch.full((16, 16), 2.0))
    assert torch.equal(seen["layers.0.qkv"], torch.ones(16, 16))
    assert SOUND.linears(Noted()).__class__ is Noted


def test_keys_and_values_are_rounded_in_one_layer_or_refused() -> None:
    model = load_model(CHAT, "float32")
    model.keep_rounded(torch.zeros_like, 1)
    model.keep_rounded(None, 1)
    own = load_model(CHAT, "bfloat16")
    if own.native is None:
        pytest.skip("our own kernels are not to be had here")
    with pytest.raises(ValueError, match="kernels = torch"):
        own.keep_rounded(torch.zeros_like)
