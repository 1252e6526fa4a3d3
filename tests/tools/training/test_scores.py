"""The figures of models.md, on models whose figures are known beforehand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from engines.tokenizer import tokenizer as serving
from tools.training import export
from tools.training.acceptance import measure
from tools.training.greedy import generate
from tools.training.line_scores import AS_ASKED, LEFT_TO_RIGHT, WHOLE_PREFIX, Cursor, draw, prompts, score_lines
from tools.training.model import Llama, Shape
from tools.training.text_scores import score_positions, score_texts

MODEL = Path("models/slipstream-code")
TEXTS = [path.read_text() for path in sorted(Path("contracts").glob("*.py")) if path.stat().st_size > 1000]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL / "tokenizer.json"))


def clueless() -> Llama:
    """Every token is equally likely to it."""
    shape = Shape(
        vocab_size=4096,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
    )
    model = Llama(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def test_a_clueless_model_needs_twelve_bits_a_token(tokenizer: Tokenizer) -> None:
    text = "naïve = [1, 2, 3]\n" * 40
    tokens = len(tokenizer.encode(text).ids)
    for context in (16, 64, 5000):
        scores = score_texts(clueless(), tokenizer, [text, text], context)
        assert scores.tokens == 2 * tokens
        assert scores.bits_per_byte == pytest.approx(12 * tokens / len(text.encode()), rel=1e-5)


def test_a_clueless_model_is_so_at_every_position(tokenizer: Tokenizer) -> None:
    losses = score_positions(clueless(), tokenizer, TEXTS[:1], [0, 64, 128, 512], 3)
    assert losses == pytest.approx([math.log(4096)] * 3, rel=1e-5)


def test_cursors_stand_in_code_lines_and_the_parts_fit() -> None:
    cursors = draw(TEXTS, 100, seed=1)
    assert draw(TEXTS, 100, seed=1) == cursors
    assert len(set(cursors)) == 100
    for cursor in cursors:
        assert any(cursor.before + cursor.rest + cursor.after in text for text in TEXTS)
        assert "\n" not in cursor.rest
        assert cursor.rest.strip()
        assert not (cursor.before[cursor.before.rfind("\n") + 1 :] + cursor.rest).strip().startswith("#")
        assert cursor.after[:1] in ("\n", "")


def test_the_ways_to_ask_hold_the_same_text() -> None:
    tokenizer = serving.Tokenizer.load(MODEL)
    cursor = draw(TEXTS, 1, seed=2)[0]
    asked = prompts(tokenizer, cursor)
    assert tokenizer.decode(asked[LEFT_TO_RIGHT]) == cursor.before
    assert tokenizer.decode(asked[AS_ASKED]) == tokenizer.decode(asked[WHOLE_PREFIX]) == cursor.after + cursor.before
    assert asked[AS_ASKED] == tokenizer.fill_ids(cursor.before, cursor.after)
    assert asked[AS_ASKED] != asked[WHOLE_PREFIX]


def test_a_line_counts_when_the_engine_writes_it() -> None:
    """Greedy continuations of the model itself are exact, other texts are not."""
    own = "import os\nimport sys\n\n\nclass Reader:\n    def __init__(self, "
    model = export.load(MODEL)
    tokenizer = serving.Tokenizer.load(MODEL)
    text = generate(MODEL, [tokenizer.fill_ids(own, "\n")], max_tokens=48, stop=("\n",)).texts[0]
    assert text.strip()
    scores = score_lines(MODEL, model, [Cursor(own, text, "\n"), Cursor(own, "never would it write this", "\n")])
    assert scores[AS_ASKED].exact == 0.5
    assert scores[AS_ASKED].bits_per_byte > 0


def test_acceptance_counts_checks_and_tokens(tokenizer: Tokenizer) -> None:
    asked = [tokenizer.encode("value = [1, 2, 1, 2, 1, 2, 1, 2,").ids]
    rows = measure(MODEL, asked, 24, None)
    assert [(row.source, row.temperature) for row in rows] == [("n-gram", 0.0), ("n-gram", 1.0)]
    assert rows[0].tokens <= 24
    assert 1 <= rows[0].tokens_per_check <= 4
    assert 1 <= rows[0].tokens_per_step <= rows[0].tokens_per_check
