"""A model's logits for one sequence, computed through pages in chunks."""

from __future__ import annotations

import torch
from torch import Tensor

from engines.embedded.batch import BatchBuilder
from engines.embedded.config import KVConfig
from engines.embedded.kv.store import KVStore
from engines.embedded.models.llama import Llama
from engines.embedded.scheduler import Work
from engines.embedded.sequence import Sequence
from engines.tokenizer.text_stream import BytesTextStream
from tests.engines.embedded.tiny import request


@torch.inference_mode()
def forward(model: Llama, ids: list[int], chunk: int) -> Tensor:
    """(len(ids), vocabulary) float32; chunk: tokens per step."""
    pages = -(-len(ids) // 16)
    page_bytes = model.config.kv_elements_per_token * model.dtype.itemsize * 16
    store = KVStore(model.config, KVConfig(budget_bytes=pages * page_bytes, page_tokens=16), model.dtype, len(ids))
    builder = BatchBuilder(16, model.dtype)
    sequence = Sequence(request("r", ids), 0, BytesTextStream({}), model.config.vocab_size, 0.0)
    sequence.pages = list(range(pages))[::-1]
    rows = []
    while sequence.pending:
        tokens = min(chunk, sequence.pending)
        batch = builder.build([Work(sequence, tokens)]).prompts
        assert batch is not None
        rows.append(model.logits(model.hidden(batch.ids, batch.positions, store.pages, batch.plan)))
        sequence.computed += tokens
    return torch.cat(rows)
