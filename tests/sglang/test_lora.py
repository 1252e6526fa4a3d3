"""LoRA adapters in the real SGLang, loaded and unloaded as the driver asks for it: a request with one is answered as by
the merged model, and what is said of one that is not there is understood."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
import pytest
import torch

from contracts.adapter import Adapter
from contracts.errors import AdapterUnavailable
from contracts.generation import Caller, Generation, Sampling, TextPrompt, Tier
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.engines.embedded.peft_folder import merge, write_adapter
from tests.engines.embedded.tiny import finish, make_engine, request, text
from tests.sglang.server import MODELS, SGLangServer, sglang_server

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.timeout(700),
    # 0.5.23 with --enable-lora does not start on a CPU alone: "pin_memory=True requires a CUDA or other accelerator"
    pytest.mark.skipif(not torch.cuda.is_available(), reason="SGLang pins memory for its LoRA layers"),
]
DRIVER = drivers.get("sglang")
MODEL = MODELS / "slipstream-chat"
PROMPT = tuple(range(300, 340))
TOKENS = 4
ADAPTERS = {"a": (0, 32), "b": (3, 32), "c": (2, 64)}
"""Seed and alpha of each: those whose merged models are sure enough of the first tokens that bfloat16 changes none."""
FLAGS = (
    "--enable-lora", "--lora-backend", "torch_native", "--max-lora-rank", "8", "--max-loras-per-batch", "2",
    "--max-loaded-loras", "2", "--lora-target-modules", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
    "down_proj",
)  # fmt: skip


class Served(NamedTuple):
    server: SGLangServer
    connections: EngineConnections
    adapters: dict[str, Adapter]
    merged: dict[str, str]


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("adapters")
    adapters, merged = {}, {}
    for name, (seed, alpha) in ADAPTERS.items():
        path = write_adapter(folder / name, MODEL, seed=seed, lora_alpha=alpha)
        adapters[name] = Adapter(f"id-{name}", "support", "tiny", str(path))
        engine = make_engine(merge(MODEL, path, folder / f"merged-{name}"))
        merged[name] = text(finish(engine, request("r", PROMPT, max_tokens=TOKENS))["r", 0])
    async with sglang_server(MODEL, "tiny", "engine-token", *FLAGS) as server:
        connections = EngineConnections(OneKey("engine-token"))
        yield Served(server, connections, adapters, merged)
        await connections.close()


async def load(served: Served, name: str) -> str | None:
    adapter = served.adapters[name]
    asked = DRIVER.load_adapter(adapter.engine_name, adapter.path)
    assert asked is not None
    return DRIVER.load_refusal(*await served.connections.fetch(served.server.url, asked, 60))


async def unload(served: Served, name: str) -> int:
    asked = DRIVER.unload_adapter(served.adapters[name].engine_name)
    assert asked is not None
    status, _ = await served.connections.fetch(served.server.url, asked, 60)
    return status


async def answer(served: Served, number: str, name: str | None) -> str:
    """Streamed, as gateways ask. Raises what the driver makes of a refusal."""
    generation = Generation(
        f"req_{number}",
        Caller("o", "p", "k"),
        Tier.CHAT,
        "tiny",
        TextPrompt((PROMPT,)),
        Sampling(TOKENS, temperature=0.0),
        adapter=None if name is None else served.adapters[name],
    )
    asked = DRIVER.generate(generation, "tiny")
    status, body = await served.connections.fetch(served.server.url, asked, 60)
    if status != 200:
        raise DRIVER.error(status, body)
    events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: {")]
    chunks = [msgspec.json.decode(event) for event in events]
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


async def test_answers_are_those_of_the_merged_models(served: Served) -> None:
    assert await load(served, "a") is None
    assert await load(served, "a") is None, "it holds it already"
    assert await load(served, "b") is None
    plain = await answer(served, "0", None)
    assert [await answer(served, f"1{name}", name) for name in "ab"] == [served.merged[name] for name in "ab"]
    assert await answer(served, "2", None) == plain
    assert len({plain, served.merged["a"], served.merged["b"]}) == 3


async def test_one_that_was_never_loaded_is_told_apart_from_other_errors(served: Served) -> None:
    with pytest.raises(AdapterUnavailable):
        await answer(served, "3", "c")
    assert await unload(served, "c") == 400


async def test_a_path_that_is_not_there_is_refused(served: Served) -> None:
    asked = DRIVER.load_adapter("lora-none", "/nowhere/at-all")
    assert asked is not None
    assert DRIVER.load_refusal(*await served.connections.fetch(served.server.url, asked, 60))


async def test_one_that_is_unloaded_can_be_loaded_again(served: Served) -> None:
    assert await unload(served, "a") == 200
    assert await load(served, "c") is None
    assert await answer(served, "4", "c") == served.merged["c"]
    assert await unload(served, "c") == 200
    assert await load(served, "a") is None
    assert await answer(served, "5", "a") == served.merged["a"]
