"""The ten completions of the docs are what the engine writes when the gateway asks."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from training.__main__ import main
from training.examples_command import EXAMPLES, complete

MODEL = Path("models/slipstream-code")


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
