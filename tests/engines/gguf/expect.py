"""Writes llama_cpp.json: llama.cpp's results for the files of `tiny_gguf`. Needs the wheel xllamacpp, 2026.10 or newer.

python -m tests.engines.gguf.expect
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.engines.gguf.tiny_gguf import KINDS, LLAMA, QWEN2, QWEN3, SCALES, WIDE, write_gguf

FILE = Path(__file__).with_name("llama_cpp.json")
PROMPT = [5, 17, 400, 33, 2000, 9, 9, 1, 77, 310, 12]
SHOWN = 40
"""Tokens whose log probabilities are kept: the likeliest."""


def cases() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Name, model and kind of each file."""
    for kind in KINDS:
        yield f"llama {kind}", LLAMA, kind
    yield "qwen2 F32", QWEN2, "F32"
    yield "qwen3 F32", QWEN3, "F32"
    for model, config in {"llama": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3}.items():
        for kind in SCALES:
            yield f"{model} {kind}", {**config, **WIDE}, kind


def logprobs(path: Path, prompt: list[int], shown: int) -> list[tuple[int, float]]:
    """The likeliest next tokens by llama.cpp, on one thread, attention not rounded."""
    library: Any = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 512, 1, False, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_type_k = params.cache_type_v = library.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = library.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    body = {"prompt": prompt, "max_tokens": 1, "logprobs": shown, "temperature": 0, "cache_prompt": False}
    answer = library.Server(params).handle_completions(body)
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return [(one["id"], round(one["logprob"], 5)) for one in top]


def main() -> None:
    """All of them."""
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: logprobs(write_gguf(Path(folder) / f"{at}.gguf", config, kind), PROMPT, SHOWN)
            for at, (name, config, kind) in enumerate(cases())
        }
    FILE.write_text(
        "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(top)}" for name, top in found.items()) + "\n}\n"
    )


if __name__ == "__main__":
    main()
