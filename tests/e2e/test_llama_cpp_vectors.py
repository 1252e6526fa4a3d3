"""Vectors and scores of llama.cpp's own server (wheel xllamacpp), through a deployment and OpenAI's library."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import openai
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from contracts.pooling import Task
from engines.tokenizer.tokenizer import Tokenizer
from tests.deployment import ROOT, Deployment, deployment, free_port
from tests.engines.gguf.tiny_gguf import LLAMA, QWEN3, write_gguf
from tests.processes import answers

VENV = os.environ.get("SLIPSTREAM_LLAMA_VENV")
TOKENIZER = ROOT / "models" / "slipstream-chat"
BATCH_TOKENS = 256
TEXTS = ["a heron", "the grey heron of the pond stands", "x"]

pytestmark = [
    pytest.mark.system,
    pytest.mark.nightly,
    pytest.mark.skipif(
        not VENV and importlib.util.find_spec("xllamacpp") is None,
        reason="LLAMA.CPP NOT TESTED: give SLIPSTREAM_LLAMA_VENV, an environment with xllamacpp",
    ),
]


@contextlib.asynccontextmanager
async def llama_server(file: Path, pooling: str) -> AsyncIterator[str]:
    """Its URL, once its model is loaded."""
    python, port = (f"{VENV}/bin/python" if VENV else sys.executable), free_port()
    process = await asyncio.create_subprocess_exec(
        python, str(Path(__file__).with_name("llama_cpp_server.py")), str(file), str(port), pooling
    )
    try:
        async with aiohttp.ClientSession() as session:
            await answers(session, f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def platform(folder: Path) -> AsyncIterator[tuple[Deployment, str]]:
    """A deployment over both servers, and the URL of the one for vectors. `blind` has no tokenizer; the server of
    `misplaced` was not started for it."""
    embeds = write_gguf(folder / "embed.gguf", LLAMA, changed={"llama.pooling_type": 1})
    head = np.random.default_rng(1).normal(size=(2, QWEN3["hidden_size"]))
    labels = {"qwen3.pooling_type": 4, "qwen3.classifier.output_labels": ["yes", "no"]}
    ranks = write_gguf(folder / "rank.gguf", QWEN3, changed=labels, head=head)
    async with llama_server(embeds, "MEAN") as vectors_url, llama_server(ranks, "RANK") as scores_url:
        pools = [
            Pool(name, "llama_cpp", (Replica(f"{name}-0", url),), 2)
            for name, url in (("vectors", vectors_url), ("scores", scores_url))
        ]
        exact: dict[str, Any] = {"engine_model": "tiny", "tokenizer": str(TOKENIZER)}
        models = [
            Model("embed", Tier.CHAT, "vectors", BATCH_TOKENS, task=Task.EMBEDDING, **exact),
            Model("blind", Tier.CHAT, "vectors", BATCH_TOKENS, task=Task.EMBEDDING, engine_model="tiny"),
            Model("misplaced", Tier.CHAT, "vectors", BATCH_TOKENS, task=Task.RERANK, engine_model="tiny"),
            Model("rank", Tier.CHAT, "scores", BATCH_TOKENS, task=Task.RERANK, **exact),
        ]
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
        }
        async with deployment(environment=environment) as running:
            yield running, vectors_url


async def refusal(call: Any) -> tuple[int, str | None, str | None, str]:
    """Status, code, field and message."""
    with pytest.raises(openai.APIStatusError) as caught:
        await call
    error = caught.value
    return error.status_code, error.code, error.param, str(error.body)


async def test_vectors_and_scores_of_llama_cpp_pass_unchanged(tmp_path: Path) -> None:
    async with platform(tmp_path) as (running, engine_url):
        key, tokenizer = await running.make_key("--name", "vectors"), Tokenizer.load(TOKENIZER)
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0) as client:
            whole = await client.embeddings.with_raw_response.create(model="embed", input=TEXTS)
            vectors = [one.embedding for one in whole.parse().data]
            async with aiohttp.ClientSession() as session:
                body = {"model": "tiny", "input": TEXTS}
                async with session.post(f"{engine_url}/v1/embeddings", json=body) as answer:
                    direct = [one["embedding"] for one in (await answer.json())["data"]]
            assert np.allclose(vectors, direct, atol=1e-5)
            assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
            for text, vector in zip(TEXTS, vectors, strict=True):
                for alone in (text, tokenizer.encode(text)):
                    floats = await client.embeddings.create(model="embed", input=alone, encoding_format="float")
                    assert np.allclose(floats.data[0].embedding, vector, atol=1e-3), "each text has its own vector"
            tokens = sum(len(tokenizer.encode(text)) for text in TEXTS)
            [row] = await running.ledger(whole.headers["x-request-id"])
            assert (row["prompt_tokens"], row["completion_tokens"], row["billed"]) == (tokens, 0, True)

            long = "a heron " * BATCH_TOKENS
            embed: Any = client.embeddings.create
            assert (await refusal(embed(model="embed", input=["x", long])))[:3] == (
                400, "context_length_exceeded", "input[1]",
            )  # fmt: skip
            status, code, _, said = await refusal(embed(model="blind", input=long))
            assert (status, code) == (400, "context_length_exceeded"), said
            assert f"{BATCH_TOKENS} tokens" in said
            assert (await refusal(embed(model="embed", input="x", dimensions=8)))[:3:2] == (400, "dimensions")

            async def post(path: str, **fields: Any) -> Any:
                return await client.post(path, cast_to=object, body=fields)

            ranked = await post("/rerank", model="rank", query="the heron", documents=TEXTS)
            scores = [one["relevance_score"] for one in ranked["results"]]
            assert scores == sorted(scores, reverse=True)
            assert len(set(scores)) == len(TEXTS)
            scored = await post("/score", model="rank", text_1="the heron", text_2=TEXTS)
            assert [one["score"] for one in scored["data"]] == pytest.approx(
                [score for _, score in sorted(zip((one["index"] for one in ranked["results"]), scores, strict=True))]
            )
            assert (await refusal(post("/score", model="rank", text_1=TEXTS, text_2=TEXTS)))[:3:2] == (400, "text_1")
            status, _, _, said = await refusal(post("/rerank", model="misplaced", query="x", documents=["y"]))
            assert status == 502
            assert "was not started for such requests" in said
        assert "Start it with `--reranking`" in running.log("gateway-1")
