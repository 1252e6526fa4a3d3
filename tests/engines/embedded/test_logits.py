"""The engine's numbers against a forward pass written for reading."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engines.embedded.batch import BatchBuilder
from engines.embedded.config import KVConfig
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import load_model
from engines.embedded.scheduler import Work
from engines.embedded.sequence import Sequence
from engines.embedded.stops import StopMatcher
from engines.tokenizer.text_stream import BytesTextStream
from tests.engines.embedded import naive_llama
from tests.engines.embedded.tiny import CONFIG, finish, make_engine, random_weights, request, write_model

SHAPES = {
    "tied": CONFIG,
    "untied": {**CONFIG, "tie_word_embeddings": False},
    "no grouping": {**CONFIG, "num_key_value_heads": 4},
    "one kv head": {**CONFIG, "num_key_value_heads": 1},
    "wide heads": {**CONFIG, "head_dim": 16},
}
PROMPT = [5, 17, 400, 33, 2000, 9, 9, 1, 77, 310, 12]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("chunk", [1, 3, 11])
def test_logits_equal_the_naive_forward_pass(tmp_path: Path, name: str, chunk: int) -> None:
    config = SHAPES[name]
    weights = random_weights(config)
    model = load_model(write_model(tmp_path, config, weights), "float32")
    store = KVStore(model.config, KVConfig(budget_bytes=1 << 20, page_tokens=4), model.dtype, 64)
    builder = BatchBuilder(4, model.dtype)
    sequence = Sequence(request("r", PROMPT), 0, BytesTextStream({}), 2048, 0.0)
    sequence.pages = [7, 2, 5]
    rows = []
    with torch.inference_mode():
        while sequence.pending:
            tokens = min(chunk, sequence.pending)
            batch = builder.build([Work(sequence, tokens)]).prompts
            assert batch is not None
            rows.append(model.logits(model.hidden(batch.ids, batch.positions, store.pages, batch.plan)))
            sequence.computed += tokens
    torch.testing.assert_close(torch.cat(rows), naive_llama.logits(config, weights, PROMPT), atol=2e-4, rtol=2e-4)


def test_greedy_text_equals_the_naive_continuation(tiny_model: Path) -> None:
    expected = naive_llama.greedy(CONFIG, random_weights(CONFIG), PROMPT, 12)
    engine = make_engine(tiny_model)
    deltas = finish(engine, request("r", PROMPT, max_tokens=12, logprobs=0))
    assert [entry.id for delta in deltas["r", 0] for entry in delta.logprobs] == expected


def test_bf16_stays_close_to_float32(tmp_path: Path) -> None:
    weights = {name: tensor.bfloat16() for name, tensor in random_weights(CONFIG).items()}
    folder = write_model(tmp_path, {**CONFIG, "torch_dtype": "bfloat16"}, weights)
    results = []
    for dtype in ("bfloat16", "float32"):
        model = load_model(folder, dtype)
        store = KVStore(model.config, KVConfig(budget_bytes=1 << 20, page_tokens=4), model.dtype, 64)
        sequence = Sequence(request("r", PROMPT), 0, BytesTextStream({}), 2048, 0.0)
        sequence.pages = [0, 1, 2]
        with torch.inference_mode():
            batch = BatchBuilder(4, model.dtype).build([Work(sequence, len(PROMPT))]).prompts
            assert batch is not None
            results.append(model.logits(model.hidden(batch.ids, batch.positions, store.pages, batch.plan)))
    error = (results[0] - results[1]).abs().max() / results[1].std()
    assert error < 0.15


def test_nothing_is_held_back_without_stop_strings() -> None:
    assert StopMatcher(()).push("abc") == ("abc", None)
