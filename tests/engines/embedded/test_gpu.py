"""On one CUDA GPU: the same tokens as on a CPU, with recorded steps and without."""

from __future__ import annotations

import pytest
import torch

from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig, KVConfig
from engines.embedded.engine import Engine
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig
from tests.engines.embedded.tiny import SHIPPED, drain, finish, request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]
CODE = SHIPPED / "slipstream-code"


def engine_on(device: str, *, graphs: bool = True, dtype: str = "float32", speculation: str = "off") -> Engine:
    config = EngineConfig(
        model=str(CODE),
        device=device,  # type: ignore[arg-type]
        cuda_graphs=graphs,
        dtype=dtype,  # type: ignore[arg-type]
        kv=KVConfig(budget_bytes=64 << 20),
        speculation=SpeculationConfig(method=speculation, governed=False),  # type: ignore[arg-type]
    )
    return build_engine(config, 1024, Tokenizer.load(CODE))


def texts(engine: Engine, **sampling: object) -> dict[tuple[str, int], list[int]]:
    wanted = [
        request(f"r{at}", range(300 + at, 340 + 3 * at), max_tokens=40, logprobs=0, **sampling)  # type: ignore[arg-type]
        for at in range(11)
    ]
    return {key: [e.id for d in deltas for e in d.logprobs] for key, deltas in finish(engine, *wanted).items()}


@pytest.fixture(autouse=True)
def exact_float32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


def test_float32_text_is_that_of_a_cpu() -> None:
    assert texts(engine_on("cuda")) == texts(engine_on("cpu"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recorded_steps_give_what_others_give(dtype: str) -> None:
    recorded = engine_on("cuda", dtype=dtype)
    assert texts(recorded) == texts(engine_on("cuda", graphs=False, dtype=dtype))
    assert recorded._runner._graphs is not None
    assert recorded._runner._graphs._recorded


def test_sampled_text_depends_on_the_seed_alone() -> None:
    sampling = {"temperature": 0.9, "top_p": 0.9, "seed": 3}
    assert texts(engine_on("cuda"), **sampling) == texts(engine_on("cuda", graphs=False), **sampling)


def test_guesses_change_nothing() -> None:
    assert texts(engine_on("cuda", speculation="ngram")) == texts(engine_on("cuda"))


def test_a_prefix_is_found_and_an_abort_gives_pages_back() -> None:
    engine = engine_on("cuda")
    finish(engine, request("first", range(300, 364), max_tokens=2))
    (deltas,) = finish(engine, request("again", range(300, 364), max_tokens=2)).values()
    assert deltas[-1].cached_tokens == 63
    engine.submit(request("gone", range(400, 450), max_tokens=100))
    engine.step()
    engine.step()
    engine.abort("gone")
    assert not drain(engine)
    assert engine.pages.pinned == 0


def test_memory_does_not_grow_with_steps() -> None:
    engine = engine_on("cuda")
    texts(engine)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    texts(engine)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)
