"""NaN and infinity end a request as the engine's failure, and never reach another request."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from contracts.errors import EngineFailed
from engines.embedded.engine import Engine
from engines.embedded.output import Delta
from engines.embedded.sampler import NO_TOKEN, pick
from router.core.events import Probe
from router.generation_probe import outcome
from speculative.config import SpeculationConfig
from tests.engines.embedded.served import served
from tests.engines.embedded.test_random_load import check_running
from tests.engines.embedded.test_sampler import row
from tests.engines.embedded.tiny import (
    CONFIG,
    SHIPPED,
    drain,
    finish,
    make_engine,
    random_weights,
    request,
    text,
    write_model,
)

BROKEN_ID = 700
"""Its embedding is NaN; the output's weights are others."""
NGRAM = SpeculationConfig(method="ngram", governed=False, ngram_least=1)


@pytest.fixture(scope="module")
def one_broken_id(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is well but for prompts with `BROKEN_ID`."""
    config = {**CONFIG, "tie_word_embeddings": False}
    weights = random_weights(config)
    weights["model.embed_tokens.weight"][BROKEN_ID] = torch.nan
    return write_model(tmp_path_factory.mktemp("models") / "broken", config, weights)


def errors(deltas: list[Delta]) -> list[Any]:
    return [None if delta.finish is None else delta.finish.error for delta in deltas]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "logprobs": 1},
        {"temperature": 0.0, "logit_bias": ((2, -100.0),)},
        {"temperature": 1.0},
        {"temperature": 1.0, "logprobs": 0},
        {"temperature": 0.7, "top_p": 0.5},
        {"temperature": 0.7, "top_k": 2, "presence_penalty": 1.0},
    ],
)
def test_no_token_is_picked_from_them(sampling: dict[str, Any], value: float) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0], [2.0, 1.0, value, -1.0]])
    well, broken = pick(logits, (row(**sampling), row(**sampling)))
    assert well.id in (0, 1, 2, 3)
    assert tuple(broken) == (NO_TOKEN, None)


@pytest.mark.parametrize(
    ("way", "sampling"),
    [
        ({}, {}),
        ({}, {"temperature": 1.0}),
        ({}, {"logprobs": 3}),
        ({"speculation": NGRAM}, {}),
        ({"speculation": NGRAM}, {"temperature": 1.0}),
        ({"max_batch_tokens": 8}, {"logprobs": 3}),
        ({"kv_dtype": "int8"}, {"temperature": 1.0}),
    ],
)
def test_only_the_request_that_has_them_ends(
    one_broken_id: Path, way: dict[str, Any], sampling: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    prompts = {"well": [*range(5, 25)], "other": [*range(30, 41)]}
    wanted = [request(rid, prompt, seed=1, **sampling) for rid, prompt in prompts.items()]
    expected = {rid: text(deltas) for (rid, _), deltas in finish(make_engine(one_broken_id, **way), *wanted).items()}
    engine = make_engine(one_broken_id, **way)
    with caplog.at_level(logging.ERROR):
        broken = [request(f"bad {at}", [*range(at), BROKEN_ID, *range(9, 30)], **sampling) for at in (1, 17)]
        found = finish(engine, broken[0], wanted[0], broken[1], wanted[1])
        for one in broken:
            (end,) = found[one.rid, 0]
            (error,) = errors([end])
            assert isinstance(error, EngineFailed)
            assert (end.text, end.completion_tokens, end.logprobs) == ("", 0, ())
            assert f"request {one.rid} failed: the model computed NaN or infinity" in caplog.text
    assert {rid: text(found[rid, 0]) for rid in prompts} == expected
    check_running(engine)
    assert engine.pages.pinned == 0
    assert engine.store.is_narrow or engine.store.pages.isfinite().all(), "nothing of it is left for others"
    again = finish(engine, *wanted, request("bad again", [0, BROKEN_ID, *range(9, 30)], **sampling))
    assert {rid: text(again[rid, 0]) for rid in prompts} == expected
    assert isinstance(errors(again["bad again", 0])[0], EngineFailed)


@pytest.mark.parametrize("asked", [{"choices": 3}, {"score_prompt": True, "logprobs": 0, "max_tokens": 0}])
def test_every_choice_and_every_score_of_a_prompt_ends(one_broken_id: Path, asked: dict[str, Any]) -> None:
    engine = make_engine(one_broken_id, max_batch_tokens=8)
    found = finish(engine, request("bad", [5, BROKEN_ID, *range(9, 30)], **asked))
    assert len(found) == asked.get("choices", 1)
    for deltas in found.values():
        assert isinstance(errors(deltas)[-1], EngineFailed)
        assert not any(delta.logprobs for delta in deltas)
    assert engine.pages.pinned == 0


@pytest.mark.parametrize("way", [{}, {"max_batch_tokens": 16}, {"kv_dtype": "fp8"}])
def test_what_was_generated_from_them_reaches_nobody_beside_it(one_broken_id: Path, way: dict[str, Any]) -> None:
    wanted = [request(f"r{at}", range(5 + at, 12 + 9 * at), max_tokens=30) for at in range(4)]
    expected = finish(make_engine(one_broken_id, **way), *wanted)
    engine = make_engine(one_broken_id, **way)
    # longer than the others: what is left of it would stand behind their contexts, where it is multiplied by 0
    bad = request("bad", range(9, 100), logit_bias=((BROKEN_ID, 100.0),))
    found = finish(engine, wanted[0], bad, wanted[1])
    assert [type(error) for error in errors(found.pop(("bad", 0)))][-1] is EngineFailed
    found |= finish(engine, *wanted[2:])
    assert {key: text(deltas) for key, deltas in found.items()} == {
        key: text(deltas) for key, deltas in expected.items()
    }


def test_our_own_kernels_leave_nothing_of_them_either(tmp_path: Path) -> None:
    folder = tmp_path / "slipstream-chat"
    shutil.copytree(SHIPPED / "slipstream-chat", folder)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    weights["model.embed_tokens.weight"][BROKEN_ID] = torch.nan
    save_file(weights, str(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    settings: dict[str, Any] = {"dtype": "bfloat16", "page_tokens": 16, "max_batch_tokens": 24, "pages": 40}
    wanted = [request(f"r{at}", range(5 + at, 18 + 9 * at), max_tokens=30) for at in range(4)]
    expected = finish(make_engine(folder, **settings), *wanted)
    engine = make_engine(folder, **settings)
    assert engine._runner._native is not None
    # as long as the memory: the others are given its pages
    bad = request("bad", [*range(100), BROKEN_ID, *range(9, 509)], max_tokens=2)
    found = finish(engine, bad, wanted[0])
    assert isinstance(errors(found.pop(("bad", 0)))[-1], EngineFailed)
    assert engine.store.pages.isfinite().all()
    found |= finish(engine, *wanted[1:])
    assert {key: text(deltas) for key, deltas in found.items()} == {
        key: text(deltas) for key, deltas in expected.items()
    }


def test_scores_that_are_not_finite_are_never_reported(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    whole = engine.model.logits
    # more rows than one are the prompt's
    engine.model.logits = lambda hidden: whole(hidden) * (torch.nan if hidden.shape[0] > 1 else 1)  # type: ignore[method-assign]
    (end,) = finish(engine, request("r", range(5, 20), score_prompt=True, logprobs=0, max_tokens=4))["r", 0]
    assert isinstance(errors([end])[0], EngineFailed)
    assert end.logprobs == ()


def break_later(engine: Engine) -> None:
    """Its logits are NaN from now on."""
    engine.model.logits = lambda hidden: torch.full((hidden.shape[0], 2048), torch.nan)  # type: ignore[method-assign]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0}])
def test_text_before_the_failure_is_sent_and_counted(tiny_model: Path, sampling: dict[str, Any]) -> None:
    engine = make_engine(tiny_model)
    engine.submit(request("r", range(5, 20), **sampling))
    before = [delta for _ in range(4) for delta in engine.step()]
    break_later(engine)
    (end,) = drain(engine)["r", 0]
    assert text(before)
    assert (end.completion_tokens, end.text) == (4, "")
    assert isinstance(errors([end])[0], EngineFailed)


# over HTTP


@pytest.fixture(scope="module")
def broken_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the shipped chat model with one row of NaN: of the embedding, which is the output's too."""
    folder = tmp_path_factory.mktemp("models") / "slipstream-chat"
    shutil.copytree(SHIPPED / "slipstream-chat", folder)
    weights: dict[str, Tensor] = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][1_900] = torch.nan
    save_file(weights, str(folder / "model.safetensors"))
    return folder


CHAT = {"model": "slipstream-chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}


async def test_the_answer_is_a_failure_that_probes_see(broken_chat: Path, session: aiohttp.ClientSession) -> None:
    ways: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 1}, {"temperature": 0, "logprobs": True}]
    async with served(model=str(broken_chat)) as engine:
        for stream in (False, True):
            for way in ways:
                asked = {**CHAT, **way, "stream": stream}
                async with session.post(f"{engine.url}/v1/chat/completions", json=asked) as answer:
                    body = await answer.read()
                assert answer.status == 500, body
                assert b"computed NaN or infinity" in body
                assert outcome(answer.status, body)[0] is Probe.FAILED
        async with session.get(f"{engine.url}/metrics") as metrics:
            assert 'sglang:num_broken_requests_total{model_name="slipstream-chat"} 6.0' in await metrics.text()


async def test_a_stream_that_has_begun_ends_in_an_error(session: aiohttp.ClientSession) -> None:
    async with served(model=str(SHIPPED / "slipstream-chat")) as engine:
        body = {**CHAT, "max_tokens": 3_000, "ignore_eos": True, "stream": True}
        async with session.post(f"{engine.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            await answer.content.readline()
            assert engine.service.engine is not None
            break_later(engine.service.engine)
            events = (await answer.read()).split(b"\n\n")
    assert b'"error":{' in events[-2]
    assert b'"code":500' in events[-2]
    assert b"[DONE]" not in events[-2]
