"""Replayed edits on pools of SGLang and vLLM, whose engines are forced by a grammar, score as on any other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.fill_in_the_middle import FillInTheMiddle
from engines.drivers.openai_body import opening_pattern
from engines.tokenizer.tokenizer import Tokenizer
from evals.asked import FILL, body_of, path_of, text_of
from evals.sandbox.sandbox import Sandbox
from evals.slices import code_tests
from evals.slices.code_edits import EDIT_SLICES
from evals.slices.item import Item
from gateway.wire.config import RequestConfig
from gateway.wire.mistral.format import FimFormat
from tests.gateway.serving import harness as harnesses
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import Harness, harness
from tests.psm_model import write_psm_model

FIM = FimFormat(RequestConfig())
SEEDS = range(40, 64)


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Laid out as Qwen2.5-Coder is."""
    return Tokenizer.load(write_psm_model(tmp_path_factory.mktemp("psm") / "code"))


@pytest.fixture(autouse=True)
def healing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model as fleets have it, but for what requests of evals take no part in."""
    plain = harnesses.target

    def usual(driver: str, tokenizer: Tokenizer | None = None) -> Any:
        made = plain(driver, tokenizer)
        return msgspec.structs.replace(
            made, model=msgspec.structs.replace(made.model, fim=FillInTheMiddle(warm_up=False))
        )

    monkeypatch.setattr(harnesses, "target", usual)


async def answer(platform: Harness, item: Item, text: str) -> tuple[str, dict[str, Any]]:
    """The response to an item whose model writes a text behind the cursor, and the engine's request."""
    platform.script(obeys=True, texts=(text,), tokens=1)
    client = Client()
    body = msgspec.json.encode(body_of(item, "m"))
    assert path_of(item) == FILL
    await platform.serve(client, body, FIM, agent=b"aiohttp")
    assert client.answer.status == 200, client.answer.body
    *_, sent = platform.engines[0].records.values()
    return text_of(client.answer.json), dict(msgspec.json.decode(sent.body))


def opening_in(sent: dict[str, Any], driver: str) -> str | None:
    return sent.get("regex") if driver == "sglang" else sent.get("structured_outputs", {}).get("regex")


@pytest.mark.parametrize("driver", ["sglang", "vllm"])
async def test_what_stood_there_scores_all_and_a_word_too_much_does_not(driver: str, coder: Tokenizer) -> None:
    slices = (*EDIT_SLICES, code_tests.slice_in(Sandbox()))
    healed = 0
    async with harness(engines=1, driver=driver, tokenizer=coder) as platform:
        for seed in SEEDS:
            for one in slices:
                item = one.item(seed)
                assert item.gap is not None
                text, sent = await answer(platform, item, item.reference)
                assert text == item.reference, "the forced text is the file's, and no part of the completion"
                if one.name != code_tests.NAME:
                    assert item.score(text) == 1.0
                forced = opening_in(sent, driver)
                typed = item.gap.prefix.rpartition("\n")[2]
                if forced is not None:
                    healed += 1
                    begun = next(end for end in range(1, len(typed) + 1) if opening_pattern(typed[-end:]) == forced)
                    typed = typed[:-begun]
                assert coder.decode(sent["prompt"]).endswith(typed), "the half-typed line comes last"
        item = EDIT_SLICES[0].item(SEEDS[0])
        text, _ = await answer(platform, item, f"x{item.reference}")
        assert item.score(text) == 0.0
        platform.require_balanced()
    assert healed > len(slices) * len(SEEDS) / 4
