"""Vectors of an embedding folder against `transformers`, and the engine that serves them."""

from __future__ import annotations

import base64
import json
import shutil
from array import array
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch.nn import functional
from transformers import AutoModel

from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig
from engines.embedded.pooling import Pooling
from engines.embedded.service import Service
from tests.engines.embedded.engine_process import TOKEN
from tests.engines.embedded.served import served
from tests.engines.embedded.test_families import make
from tests.engines.embedded.tiny import SHIPPED

TEXTS = ["The heron stands.", "A train leaves the station at noon, and nobody waves.", "def f(x):\n    return x\n" * 20]
END = "<|end|>"


def folder_of(path: Path, kind: str = "qwen3", mode: str = "lasttoken", *, alone: bool = False, **config: Any) -> Path:
    """A random embedding folder, as sentence-transformers writes one. alone: saved without its head."""
    vocabulary = Tokenizer.from_file(str(SHIPPED / "slipstream-chat" / "tokenizer.json"))
    size = vocabulary.get_vocab_size()
    model = make(path, kind, {"vocab_size": size, "head_dim": 16, "max_position_embeddings": 512}, torch.float32)
    if alone:
        for file in path.glob("*.safetensors"):
            file.unlink()
        model.model.save_pretrained(path)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (SHIPPED / "slipstream-chat" / name).exists():
            shutil.copy(SHIPPED / "slipstream-chat" / name, path)
    end = vocabulary.token_to_id(END)
    vocabulary.post_processor = TemplateProcessing(single=f"$A {END}", special_tokens=[(END, end)])
    vocabulary.save(str(path / "tokenizer.json"))
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {
            "idx": at,
            "name": str(at),
            "path": "1_Pooling" if at == 1 else "",
            "type": f"sentence_transformers.models.{one}",
        }
        for at, one in enumerate(kinds)
    ]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{one}": one == mode for one in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **modes}))
    changed = json.loads((path / "config.json").read_text()) | config
    (path / "config.json").write_text(json.dumps(changed))
    return path


@torch.inference_mode()
def theirs(path: Path, texts: list[str], mode: str) -> list[list[float]]:
    """The vectors by `transformers`."""
    model, tokenizer = AutoModel.from_pretrained(path).eval(), Tokenizer.from_file(str(path / "tokenizer.json"))
    found = []
    for text in texts:
        states = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
        pooled = states[-1] if mode == "lasttoken" else states.mean(0)
        found.append(functional.normalize(pooled, dim=0).tolist())
    return found


@pytest.mark.parametrize(
    ("kind", "mode", "alone"),
    [("qwen3", "lasttoken", False), ("llama", "mean_tokens", True), ("qwen2", "lasttoken", True)],
)
async def test_vectors_equal_transformers(tmp_path: Path, kind: str, mode: str, alone: bool) -> None:
    path = folder_of(tmp_path / "vectors", kind, mode, alone=alone)
    expected = theirs(path, TEXTS, mode)
    # a long text is computed in several steps, and the waves are two
    scheduler = {"max_running": 2, "max_batch_tokens": 64}
    async with (
        served(model=str(path), scheduler=scheduler) as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key=TOKEN, max_retries=0) as client,
    ):
        for _ in range(2):  # the second time from the prefix cache, where that is allowed
            answer = await client.embeddings.create(model="vectors", input=TEXTS, encoding_format="float")
            for one, theirs_ in zip(answer.data, expected, strict=True):
                torch.testing.assert_close(torch.tensor(one.embedding), torch.tensor(theirs_), atol=1e-4, rtol=1e-3)
        own = engine.service.tokenizer
        assert answer.usage.prompt_tokens == sum(own.count(text) + 1 for text in TEXTS)
        ids = [*own.encode(TEXTS[0]), *own.trailing_ids]
        by_id = await client.embeddings.create(model="vectors", input=[ids])  # the SDK requests base64 by itself
        torch.testing.assert_close(
            torch.tensor(by_id.data[0].embedding), torch.tensor(expected[0]), atol=1e-4, rtol=1e-3
        )
        await client.embeddings.create(model="vectors", input=["a"] * 5)


async def test_dimensions_where_the_folder_allows_them(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "vectors", matryoshka_dimensions=[16, 32])
    async with (
        served(model=str(path)) as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key=TOKEN, max_retries=0) as client,
    ):
        whole = (await client.embeddings.create(model="vectors", input="heron")).data[0].embedding
        cut = await client.embeddings.create(model="vectors", input="heron", dimensions=16, encoding_format="base64")
        numbers = torch.tensor(array("f", base64.b64decode(str(cut.data[0].embedding))).tolist())
        torch.testing.assert_close(numbers, functional.normalize(torch.tensor(whole[:16]), dim=0))
        with pytest.raises(openai.BadRequestError, match="dimensions: 17; this model's vectors have 64 numbers"):
            await client.embeddings.create(model="vectors", input="heron", dimensions=17)
        with pytest.raises(openai.BadRequestError, match=r"input\[1\] must be text, or token ids below"):
            await client.embeddings.create(model="vectors", input=[[1], [10**9]])
        with pytest.raises(openai.BadRequestError, match="makes vectors and generates no text; use /v1/embeddings"):
            await client.completions.create(model="vectors", prompt="a")
        with pytest.raises(openai.BadRequestError, match=r"context is 512 tokens\. The prompt has"):
            await client.embeddings.create(model="vectors", input="one two three " * 400)


async def test_a_text_model_makes_no_vectors(tiny_model: Path) -> None:
    async with (
        served(model=str(tiny_model)) as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key=TOKEN, max_retries=0) as client,
    ):
        with pytest.raises(openai.BadRequestError, match="'tiny' generates text and makes no vectors"):
            await client.embeddings.create(model="tiny", input="a")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "modules.json",
            [{"type": "sentence_transformers.models.Transformer"}],
            r"the parts are Transformer; supported",
        ),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}, r"pooling_mode_cls_token is set; supported"),
        ("1_Pooling/config.json", {}, r"no pooling mode is set"),
        ("config.json", {"is_causal": False}, r"is_causal must be true"),
    ],
)
def test_a_folder_that_pools_otherwise_is_refused(tmp_path: Path, file: str, content: Any, message: str) -> None:
    path = folder_of(tmp_path / "vectors")
    (path / file).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        Pooling.read(path)


def test_a_decoder_without_a_head_needs_its_pooling(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "vectors", alone=True, architectures=["Qwen3Model"])
    (path / "modules.json").unlink()
    with pytest.raises(ConfigError, match=r"no head to generate text with, and the folder has no modules\.json"):
        Service(EngineConfig(model=str(path)))
