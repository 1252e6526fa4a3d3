"""Keys and values in 8 bits: what is read back is what attention sees, wherever it was copied to; and a budget holds
more of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from contracts.errors import ConfigError
from engines.embedded.config import KV_SCALE_BYTES, EngineConfig, KVConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.mirror import ContextMirror
from engines.embedded.kv.store import KVStore
from engines.embedded.models.config import ModelConfig
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.linears import linears_of
from engines.embedded.request import Request
from engines.embedded.runner import Runner
from engines.layers import narrow_kv
from engines.layers.attention import AttentionPlan, Chunk, PagedAttention, TokenGroup
from speculative.config import SpeculationConfig
from tests.engines.embedded.test_graphs import with_graphs
from tests.engines.embedded.tiny import SHIPPED, finish, make_engine, request
from tests.examples import examples
from tools.quantization.scheme import Rounder, Scheme

Format = Literal["fp8", "int8"]
FORMATS: tuple[Format, ...] = ("fp8", "int8")
every_format = pytest.mark.parametrize("format_", FORMATS)
LARGEST_ERROR = {"int8": 0.5 / 127 * 1.005, "fp8": 1 / 28 * 1.005}
"""Of a number, by the largest of its head: half a step; E4M3's steps are 32 of 448 at the top."""
PROMPT = [*range(300, 320), *range(300, 320), *range(300, 305)]


def outcome(engine: Engine, *requests: Request) -> dict[tuple[str, int], list[tuple[int, float]]]:
    """Ids and log probabilities by choice."""
    return {
        key: [(one.id, one.logprob) for delta in deltas for one in delta.logprobs]
        for key, deltas in finish(engine, *requests).items()
    }


def ids(engine: Engine, *requests: Request) -> dict[tuple[str, int], list[int]]:
    return {key: [id_ for id_, _ in told] for key, told in outcome(engine, *requests).items()}


@every_format
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1e-30, 1e-4, 1.0, 3e4]))
@examples(nightly=100, gate=10)
def test_a_number_is_off_by_half_a_step_of_its_head_at_most(format_: Format, seed: int, size: float) -> None:
    torch.manual_seed(seed)
    heads = torch.randn(5, 2, 3, 16) * torch.rand(5, 2, 3, 1) * size
    heads[0, 0] = 0
    rows = narrow_kv.encode(heads, narrow_kv.CODES[format_])
    assert rows.shape[-1] == narrow_kv.row_width(16)
    kept = narrow_kv.decode(rows, torch.float32)
    error = (kept - heads).abs().amax(-1)
    assert bool((error <= heads.abs().amax(-1) * LARGEST_ERROR[format_] + 1e-38).all())
    assert not kept[0, 0].any()


@every_format
@given(seed=st.integers(0, 2**32), context=st.integers(1, 30))
@examples(nightly=100, gate=10)
def test_attention_over_codes_is_that_over_what_they_stand_for(format_: Format, seed: int, context: int) -> None:
    torch.manual_seed(seed)
    heads, kv_heads, width, page_tokens = 4, 2, 16, 4
    attention = PagedAttention(heads, kv_heads, width)
    q, kv = torch.randn(context + 1, heads * width), torch.randn(context + 1, 2, kv_heads, width)
    pages = torch.zeros(12, page_tokens, 2, kv_heads, narrow_kv.row_width(width), dtype=narrow_kv.CODES[format_])
    order = torch.randperm(12)
    places = torch.arange(context + 1)
    slots = order[places // page_tokens] * page_tokens + places % page_tokens
    # the context is a prompt's chunk; the last token comes alone and reads it back
    chunk = AttentionPlan(slots[:-1], chunks=(Chunk(0, context, None, None),))
    prompt = attention(q[:-1], kv[:-1].flatten(1), pages, chunk, None)
    numbers = order[: context // page_tokens + 1]
    bias = torch.zeros(1, 1, 1, len(numbers) * page_tokens)
    bias[..., context + 1 :] = float("-inf")
    single = AttentionPlan(slots[-1:], (TokenGroup(0, 1, 1, numbers, bias),))
    last = attention(q[-1:], kv[-1:].flatten(1), pages, single, None)

    def reference(numbers: torch.Tensor) -> torch.Tensor:
        keys, values = numbers.transpose(0, 2).transpose(0, 1).unbind(0)
        queries = q.view(-1, heads, width).transpose(0, 1)[None]
        out = functional.scaled_dot_product_attention(
            queries, keys[None], values[None], is_causal=True, enable_gqa=True
        )
        return out[0].transpose(0, 1).flatten(1)

    found = torch.cat((prompt, last))
    kept = narrow_kv.decode(narrow_kv.encode(kv, narrow_kv.CODES[format_]), torch.float32)
    torch.testing.assert_close(found, reference(kept), atol=1e-5, rtol=1e-5)
    # scores move by |q| |k error|; weights by twice that at most, and values by their own steps
    largest = LARGEST_ERROR[format_] * float(kv.abs().max())
    scores = float(q.view(-1, heads, width).abs().sum(-1).max()) / width**0.5 * largest
    assert float((found - reference(kv)).abs().max()) <= (torch.e ** (2 * scores) - 1) * float(kv.abs().max()) + largest


@every_format
def test_the_engine_keeps_what_the_simulation_rounds_to(tiny_model: Path, format_: Format) -> None:
    simulated = make_engine(tiny_model)
    simulated.model.keep_rounded(Rounder(Scheme(format_)).keys_and_values)
    asked = request("r", PROMPT, max_tokens=40, logprobs=0, score_prompt=True)
    found = outcome(make_engine(tiny_model, kv_dtype=format_), asked)
    assert found == outcome(simulated, asked)
    assert found != outcome(make_engine(tiny_model), asked)


@every_format
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_prefix_that_is_read_back_changes_nothing(
    tiny_model: Path, format_: Format, dtype: Literal["float32", "bfloat16"]
) -> None:
    engine = make_engine(tiny_model, kv_dtype=format_, dtype=dtype)
    # ends within a page: the second copies its beginning
    finish(engine, request("before", PROMPT, max_tokens=5))
    asked = request("again", [*PROMPT, 7, 8, 9], max_tokens=20, logprobs=0)
    deltas = finish(engine, asked)["again", 0]
    assert deltas[-1].cached_tokens >= 44
    fresh = ids(make_engine(tiny_model, kv_dtype=format_, dtype=dtype), asked)
    assert [one.id for delta in deltas for one in delta.logprobs] == fresh["again", 0]


@every_format
def test_choices_that_share_a_page_are_what_each_is_alone(tiny_model: Path, format_: Format) -> None:
    asked = request("r", PROMPT, choices=4, temperature=1.0, seed=3, max_tokens=20, logprobs=0)
    together = ids(make_engine(tiny_model, kv_dtype=format_), asked)
    assert together == ids(make_engine(tiny_model, kv_dtype=format_, max_running=1), asked)
    assert len({tuple(told) for told in together.values()}) == 4


@every_format
def test_guessing_ahead_and_recomputing_change_nothing(tiny_model: Path, format_: Format) -> None:
    asked = [request(f"r{at}", [at, *PROMPT], max_tokens=40, logprobs=0) for at in range(5, 11)]
    plain = ids(make_engine(tiny_model, kv_dtype=format_), *asked)
    guessing = SpeculationConfig(method="ngram", governed=False, ngram_least=1, max_drafts=5)
    drafting = make_engine(tiny_model, kv_dtype=format_, speculation=guessing)
    assert ids(drafting, *asked) == plain
    assert drafting.stats.accepted_drafts > 0
    scarce = make_engine(tiny_model, kv_dtype=format_, pages=60, output_reserve=0.0)
    assert ids(scarce, *asked) == plain
    assert scarce.scheduler.preemptions > 0


@every_format
def test_recorded_steps_give_the_same_tokens(tiny_model: Path, format_: Format) -> None:
    asked = [request(f"r{at}", [at, *PROMPT], max_tokens=20, logprobs=0) for at in range(5, 8)]
    engine, capture = with_graphs(make_engine(tiny_model, kv_dtype=format_))
    assert ids(engine, *asked) == ids(make_engine(tiny_model, kv_dtype=format_), *asked)
    assert capture.replayed > 0


@every_format
def test_contexts_that_are_read_out_of_pages_are_those_kept_beside_them(
    tiny_model: Path, format_: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [request(f"r{at}", [at, *PROMPT], max_tokens=20, logprobs=0) for at in range(5, 8)]
    beside = ids(make_engine(tiny_model, kv_dtype=format_), *asked)
    monkeypatch.setattr(ContextMirror, "arrange", lambda self, spans: None)
    assert ids(make_engine(tiny_model, kv_dtype=format_), *asked) == beside


@every_format
def test_copied_pages_and_moved_tokens_take_their_scales_along(tiny_model: Path, format_: Format) -> None:
    shape = load_model(tiny_model, "float32").config
    store = KVStore(shape, KVConfig(budget_bytes=1 << 18, page_tokens=4, dtype=format_), torch.float32, 64)
    numbers = torch.randn(shape.num_hidden_layers, 4, 2, shape.num_key_value_heads, shape.head_dim)
    store.pages[:, 3] = narrow_kv.encode(numbers, store.pages.dtype)
    store.copy(3, 5)
    assert torch.equal(store.pages[:, 5], store.pages[:, 3])
    store.move([3 * 4 + 1], [7 * 4 + 2])
    moved = narrow_kv.decode(store.pages[:, 7, 2].contiguous(), torch.float32)
    assert torch.equal(moved, narrow_kv.decode(store.pages[:, 3, 1].contiguous(), torch.float32))


def test_a_budget_holds_as_many_tokens_as_the_arithmetic_says() -> None:
    shape = ModelConfig.read(SHIPPED / "slipstream-chat")
    held = {}
    for format_ in ("auto", *FORMATS):
        config = msgspec.convert({"budget_bytes": 1 << 24, "dtype": format_}, KVConfig)
        for dtype in (torch.bfloat16, torch.float32):
            store = KVStore(shape, config, dtype, 64)
            assert store.pages.nbytes == (store.total_pages + 1) * store.page_bytes
            assert store.page_bytes == store.token_bytes * 16
            held[format_, dtype] = store.total_tokens
    # heads of 64: 64 codes and a scale, for 128 or 256 bytes
    assert narrow_kv.SCALE.itemsize == KV_SCALE_BYTES
    for format_ in FORMATS:
        assert held[format_, torch.bfloat16] / held["auto", torch.bfloat16] == pytest.approx(128 / 66, rel=0.01)
        assert held[format_, torch.float32] / held["auto", torch.float32] == pytest.approx(256 / 66, rel=0.01)


def test_our_own_kernels_compute_no_codes() -> None:
    config = EngineConfig(model=str(SHIPPED / "slipstream-code"), kv=KVConfig(budget_bytes=1 << 22, dtype="int8"))
    folder, plain = Path(config.model), EngineConfig()
    own = load_model(folder, "bfloat16", lambda dtype: linears_of(plain, dtype))
    if own.native is None:
        pytest.skip("none can be compiled here")
    store = KVStore(own.config, config.kv, own.dtype, 64)
    assert Runner(own, store)._native is None
    assert load_model(folder, "bfloat16", lambda dtype: linears_of(config, dtype)).native is None


def test_a_budget_too_small_is_refused_by_the_bytes_of_its_format() -> None:
    shape = ModelConfig.read(SHIPPED / "slipstream-chat")
    with pytest.raises(ConfigError, match=rf"Give at least {512 * 2 * 4 * 4 * 66}"):
        KVStore(shape, KVConfig(budget_bytes=1000, dtype="fp8"), torch.bfloat16, 512)
