"""However a request is served, its greedy text is the same: exactly in float32, within rounding in bfloat16."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engines.embedded.config import EngineConfig, KVConfig, SchedulerConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.store import KVStore
from engines.embedded.models.linears import Linears, PlainLinears
from engines.embedded.models.llama import Llama
from engines.embedded.models.registry import load_model
from engines.embedded.output import TokenLogprob
from engines.embedded.quantization.linears import Int8Linears
from engines.embedded.request import Request
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig
from tests.engines.embedded.tiny import SHIPPED, drain, request

EPSILON = 0.02
"""Of log probabilities: two tokens that are so close may change places when a number is rounded the other way."""
MAX_TIES = 0.001
NGRAM = SpeculationConfig(method="ngram", governed=False, ngram_least=1, max_drafts=3)
WAYS: dict[str, dict[str, Any]] = {
    "batched": {},
    "chunked": {"max_batch_tokens": 24},
    "preempted": {"pages": 14, "output_reserve": 0.0},
    "guessed": {"speculation": NGRAM},
    "all of it": {"max_batch_tokens": 24, "pages": 14, "output_reserve": 0.0, "speculation": NGRAM},
}


def ways_of(name: str) -> dict[str, dict[str, Any]]:
    """All ways, with the model's own draft head where it has one."""
    if not (SHIPPED / name / "draft").exists():
        return WAYS
    head = SpeculationConfig(method="eagle", head=str(SHIPPED / name / "draft"), governed=False, max_drafts=3)
    return {**WAYS, "guessed by its head": {"speculation": head}}


CASES = [(name, way) for name in ("slipstream-chat", "slipstream-code") for way in ways_of(name)]


def make(folder: Path, model: Llama, *, pages: int = 400, speculation: Any = None, **scheduler: Any) -> Engine:
    kv = KVConfig(budget_bytes=pages * 16 * model.config.kv_elements_per_token * model.dtype.itemsize)
    config = EngineConfig(
        model=str(folder),
        kv=kv,
        scheduler=SchedulerConfig(**scheduler),
        speculation=speculation or SpeculationConfig(),
    )
    return Engine(model, KVStore(model.config, kv, model.dtype, 200), config, Tokenizer.load(folder).text_stream)


class Size(NamedTuple):
    """How much is compared."""

    prompts: int
    tokens: int


SMALL, WHOLE = Size(6, 24), Size(12, 60)
sizes = pytest.mark.parametrize("size", [SMALL, pytest.param(WHOLE, marks=pytest.mark.nightly)], ids=["small", "whole"])


def prompts(seed: int, count: int = WHOLE.prompts) -> list[list[int]]:
    """Half of them begin alike, and all repeat themselves, so that there is something to find and to guess."""
    source = random.Random(seed)
    stem = [source.randrange(300, 1900) for _ in range(40)]
    made = []
    for at in range(count):
        phrase = [source.randrange(300, 1900) for _ in range(source.randrange(3, 12))]
        made.append([*(stem if at % 2 else ()), *(phrase * 8)[: source.randrange(8, 60)]])
    return made


def questions(folder: Path) -> list[list[int]]:
    """What a chat model is asked, for a draft head knows nothing but that; random ids are enough for the other."""
    if "chat" not in folder.name:
        return []
    tokenizer = Tokenizer.load(folder)
    asked = ("What is the capital of France?", "Hello", "What is Slipstream?")
    return [list(tokenizer.chat_ids([{"role": "user", "content": text}])) for text in asked]


def serve(engine: Engine, wanted: list[Request]) -> dict[str, list[TokenLogprob]]:
    """One more request before every step; the tokens of each."""
    waiting = list(wanted)
    found: dict[str, list[TokenLogprob]] = {one.rid: [] for one in wanted}
    while waiting or engine.busy:
        if waiting:
            engine.submit(waiting.pop(0))
        for delta in engine.step():
            found[delta.rid] += delta.logprobs
    return found


class Alone:
    """What each request is answered when it is the only one: the same for every way it may be served otherwise."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, bool, int, Size], dict[str, list[TokenLogprob]]] = {}

    def answers(
        self, folder: Path, model: Llama, dtype: str, own_linears: bool, seed: int, size: Size, wanted: list[Request]
    ) -> dict[str, list[TokenLogprob]]:
        """Computed once for a model and its requests, which follow from seed and size."""
        key = folder.name, dtype, own_linears, seed, size
        if key not in self._answers:
            self._answers[key] = {one.rid: self._answer(folder, model, one) for one in wanted}
        return self._answers[key]

    @staticmethod
    def _answer(folder: Path, model: Llama, one: Request) -> list[TokenLogprob]:
        engine = make(folder, model)
        engine.submit(one)
        return [entry for deltas in drain(engine).values() for delta in deltas for entry in delta.logprobs]


@pytest.fixture(scope="module")
def alone() -> Alone:
    return Alone()


def ties(
    alone: Alone,
    folder: Path,
    dtype: str,
    way: dict[str, Any],
    size: Size,
    seed: int = 1,
    linears: Linears | None = None,
) -> tuple[int, list[float]]:
    """Tokens compared, and the gap between the two likeliest at the first difference of each text that differs."""
    model = load_model(folder, dtype, PlainLinears if linears is None else lambda _: linears)
    asked = [*prompts(seed, size.prompts), *questions(folder)]
    wanted = [request(f"r{at}", prompt, max_tokens=size.tokens, logprobs=2) for at, prompt in enumerate(asked)]
    engine = make(folder, model, **way)
    together = serve(engine, wanted)
    if "output_reserve" in way:
        assert engine.scheduler.preemptions > 0
    if "speculation" in way:
        assert engine.stats.accepted_drafts > 0
    assert engine.stats.cached_tokens > 0
    gaps = []
    for rid, expected in alone.answers(folder, model, dtype, linears is not None, seed, size, wanted).items():
        found = together[rid]
        assert len(found) == len(expected) == size.tokens
        for mine, theirs in zip(found, expected, strict=True):
            if mine.id != theirs.id:
                gaps.append(abs(theirs.top[0][1] - theirs.top[1][1]))
                break
    return size.tokens * len(wanted), gaps


@sizes
@pytest.mark.parametrize(("name", "way"), CASES)
def test_float32_is_the_same_however_it_is_served(alone: Alone, name: str, way: str, size: Size) -> None:
    assert ties(alone, SHIPPED / name, "float32", ways_of(name)[way], size)[1] == []


@sizes
@pytest.mark.parametrize("name", ["slipstream-chat", "slipstream-code"])
def test_bfloat16_differs_only_where_two_tokens_are_as_good_as_equal(alone: Alone, name: str, size: Size) -> None:
    compared, gaps = 0, []
    ways = ways_of(name) if size == WHOLE else {"all of it": WAYS["all of it"]}
    for way in ways.values():
        count, found = ties(alone, SHIPPED / name, "bfloat16", way, size, seed=2 if size == WHOLE else 1)
        compared += count
        gaps += found
    print(f"{name}: {len(gaps)} first differences in {compared} tokens, gaps {[round(gap, 3) for gap in gaps]}")
    assert all(gap < EPSILON for gap in gaps)
    assert len(gaps) <= MAX_TIES * compared


def test_8_bit_weights_give_the_same_text_however_it_is_served(alone: Alone) -> None:
    pytest.importorskip("numba")
    linears = Int8Linears(native=True)
    assert ties(alone, SHIPPED / "slipstream-code", "bfloat16", WAYS["all of it"], SMALL, linears=linears)[1] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_prompts_own_scores_do_not_depend_on_its_pieces(dtype: str) -> None:
    model = load_model(SHIPPED / "slipstream-chat", dtype)
    wanted = request("r", prompts(1)[0], max_tokens=2, logprobs=0, score_prompt=True)
    told = {}
    for most in (1, 2, 512):
        engine = make(SHIPPED / "slipstream-chat", model, max_batch_tokens=most)
        engine.submit(wanted)
        told[most] = [entry.id for deltas in drain(engine).values() for delta in deltas for entry in delta.logprobs]
        assert told[most][: len(wanted.prompts[0]) - 1] == list(wanted.prompts[0][1:])
    assert told[1] == told[2] == told[512]
