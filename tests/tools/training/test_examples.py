"""The ten completions of the docs are what the engine writes when the gateway asks without token healing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from contracts.desired_state import Model
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Caller, TextPrompt, Tier
from engines.drivers import registry as drivers
from engines.embedded.stats import Stats
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.openai.prepare import prepare_completion
from gateway.wire.openai.schema import CompletionRequest
from gateway.wire.prepared import Target
from tools.training import examples_command
from tools.training.__main__ import main
from tools.training.examples_command import EXAMPLES, complete
from tools.training.greedy import Generated

MODEL = Path("models/slipstream-code")


async def gateway_prompts() -> list[list[int]]:
    """The ids that the gateway sends an engine for each example."""
    model = Model("code", Tier.AUTOCOMPLETE, "pool", context_tokens=8_192, fim=FillInTheMiddle(healing=False))
    target = Target(model, drivers.get("embedded").capabilities, OffLoopTokenizer(Tokenizer.load(MODEL)))
    prompts = []
    for before, after in EXAMPLES:
        asked = CompletionRequest(model="code", prompt=before, suffix=after)
        prepared = await prepare_completion(asked, "req_1", Caller("o", "p", "k"), "salt", target)
        assert isinstance(prepared.generation.prompt, TextPrompt)
        (ids,) = prepared.generation.prompt.prompts
        prompts.append([int(id_) for id_ in ids])
    return prompts


async def test_the_examples_are_asked_as_the_gateway_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[list[int]]] = []

    def recorded(model: Path, prompts: list[list[int]], **_: Any) -> Generated:
        asked.append(prompts)
        return Generated([""] * len(prompts), Stats())

    monkeypatch.setattr(examples_command, "generate", recorded)
    complete(MODEL)
    assert asked == [await gateway_prompts()]


def test_ten_completions_are_shown_as_the_model_wrote_them() -> None:
    texts = complete(MODEL)
    assert len(texts) == len(EXAMPLES) == 10
    assert not any("\n" in text for text in texts)
    shown = CliRunner().invoke(main, ["examples", "--model", str(MODEL)], catch_exceptions=False).output
    for (before, after), text in zip(EXAMPLES, texts, strict=True):
        assert f"{before}⟦{text}⟧{after.rstrip()}" in shown


def test_every_command_explains_itself() -> None:
    for name in ("corpus", "tokenizer", "code", "chat", "head", "export", "evaluate", "examples"):
        result = CliRunner().invoke(main, [name, "--help"], catch_exceptions=False)
        assert result.exit_code == 0
        assert "Usage:" in result.output
    assert CliRunner().invoke(main, ["nothing"]).exit_code == 2
