"""What of a file's prompt is still in an engine at the file's next request, as metrics tell it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from prometheus_client import CollectorRegistry

from contracts.desired_state import KvObjective
from contracts.lease import Engine
from contracts.prefix import BLOCK_TOKENS, HASH_BYTES, chain_tokens, root
from contracts.usage import Usage
from engines.tokenizer.tokenizer import Tokenizer
from gateway.observability.file_metrics import FileMetrics
from gateway.serving.file_history import Computed, FileHistory, became, shared_blocks
from gateway.serving.request import Arrival, InferenceRequest
from gateway.wire.config import RequestConfig
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest
from gateway.wire.mistral.format import FimFormat
from gateway.wire.prepared import Prepared
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import KEY, Harness, harness
from tests.gateway.wire.openai.preparing import CALLER, MODELS, target

CODE = Tokenizer.load(MODELS / "slipstream-code")
FILE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(20))
ONE, TWO = Engine("one", "http://one", "embedded", "m", "pool"), Engine("two", "http://two", "embedded", "m", "pool")


def naive_shared_blocks(one: bytes, other: bytes) -> int:
    blocks = [[chain[at : at + HASH_BYTES] for at in range(0, len(chain), HASH_BYTES)] for chain in (one, other)]
    return sum(1 for _ in itertools.takewhile(lambda both: both[0] == both[1], zip(*blocks, strict=False)))


@given(st.integers(0, 600), st.integers(0, 600), st.integers(0, 600), st.integers(0, 1 << 30))
def test_shared_blocks_are_those_that_looking_at_each_finds(same: int, one: int, other: int, seed: int) -> None:
    dice = random.Random(seed)
    head, *tails = ([dice.randrange(50_000) for _ in range(length)] for length in (same, one, other))
    chains = [chain_tokens(root("m"), [*head, *tail]).hashes for tail in tails]
    assert shared_blocks(*chains) == naive_shared_blocks(*chains) >= same // BLOCK_TOKENS


@given(st.integers(1, 400), st.integers(0, 400), st.sampled_from([1, 16, 64]))
def test_an_engine_that_has_all_of_it_has_kept_it_whatever_its_pages(same: int, more: int, page: int) -> None:
    """An engine that holds a prompt finds whole pages of it, and never the next prompt's last token."""
    ids, next_ids = [*range(same), 99_999], [*range(same), *range(50_000, 50_000 + more)]
    before = Computed(chain_tokens(root("m"), ids).hashes, "one", 0.0, 1.0)
    hashes = chain_tokens(root("m"), next_ids).hashes
    had = min(same, len(next_ids) - 1) // page * page
    kv = became(before, hashes, "one", Usage(len(next_ids), 5, had))
    assert kv == ("kept" if min(same, len(next_ids) - 1) >= BLOCK_TOKENS else None)
    if kv is not None:
        assert became(before, hashes, "one", Usage(len(next_ids), 5, 0)) == "evicted"
        assert became(before, hashes, "two", Usage(len(next_ids), 5, 0)) == "moved"
        assert became(before, hashes, "two", Usage(len(next_ids), 5, had)) == "kept", "another replica may have it too"


class Books:
    """A history with a clock of its own, and its metrics."""

    def __init__(self, **options: Any) -> None:
        self.now = 100.0
        self.registry = CollectorRegistry()
        objective = KvObjective(within_s=30.0, share=0.9)
        self.history = FileHistory(FileMetrics(self.registry), lambda _: objective, lambda: self.now, **options)

    async def typed(
        self, prefix: str, engine: Engine = ONE, *, cached: int = -1, after_s: float = 2.0, **asked: Any
    ) -> int:
        """One request of a file, that took a second: how much of its prompt was computed. cached: -1: all but one."""
        self.now += after_s
        prepared = await gap(prefix, **asked)
        placing = self.history.placing(prepared)
        assert placing is not None
        self.now += 1.0
        cached = prepared.prompt_tokens - 1 if cached < 0 else cached
        self.history.computed(prepared, placing, engine, Usage(prepared.prompt_tokens, 5, cached))
        return prepared.prompt_tokens - cached

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def survived(self) -> dict[str, float]:
        """Requests within the objective's time, by what had become of the KV."""
        kinds = ("kept", "evicted", "moved")
        return {kv: self.sample("slipstream_kv_survival_total", pool="pool", kv=kv) or 0.0 for kv in kinds}


async def gap(prefix: str, **asked: Any) -> Prepared:
    fields = {"suffix": "\n", "path": "a.py", **asked}
    request = FillRequest(model="m", prefix=prefix, **fields)
    return await prepare_fill(request, "req_1", CALLER, "salt", target(CODE, context_tokens=2_000))


async def test_what_is_kept_evicted_and_moved_is_told_apart() -> None:
    books = Books()
    await books.typed(FILE + "x", cached=0)
    await books.typed(FILE + "x ", cached=100)
    assert books.survived() == {"kept": 0.0, "evicted": 1.0, "moved": 0.0}, "it shares more than 100 tokens"
    assert await books.typed(FILE + "x =") == 1
    await books.typed(FILE + "x = ", TWO, cached=0)
    assert books.survived() == {"kept": 1.0, "evicted": 1.0, "moved": 1.0}
    assert books.sample("slipstream_file_gap_seconds_sum", pool="pool", kv="kept") == 2.0
    assert books.sample("slipstream_kv_survival_objective", pool="pool") == 0.9
    assert books.sample("slipstream_file_prefilled_again_tokens_count", model="m") == 3
    assert books.sample("slipstream_file_prefilled_again_tokens_bucket", model="m", le="16.0") == 1


async def test_a_gap_beyond_the_objective_counts_in_the_histogram_alone() -> None:
    books = Books()
    await books.typed(FILE, cached=64)
    await books.typed(FILE + "y", cached=0, after_s=31.0)
    assert books.survived() == {"kept": 0.0, "evicted": 0.0, "moved": 0.0}
    assert books.sample("slipstream_file_gap_seconds_count", pool="pool", kv="evicted") == 1
    await books.typed(FILE + "yy", cached=0, after_s=30.0)
    assert books.survived()["evicted"] == 1.0


async def test_engines_that_have_told_no_cached_tokens_are_not_judged() -> None:
    books = Books()
    for typed in range(3):
        await books.typed(FILE + "z" * typed, cached=0)
    assert books.sample("slipstream_file_prefilled_again_tokens_count", model="m") is None
    assert sum(books.survived().values()) == 0


async def test_warm_ups_are_known_and_are_no_keystrokes() -> None:
    books = Books()
    await books.typed(FILE, cached=64)
    await books.typed(FILE, cached=64, warm_up=True)
    assert books.sample("slipstream_file_prefilled_again_tokens_count", model="m") is None
    await books.typed(FILE + "a")
    assert books.survived()["kept"] == 1.0


async def test_files_of_other_models_and_without_identity_are_no_keystrokes() -> None:
    books = Books()
    await books.typed(FILE, cached=64)
    await books.typed(FILE, cached=64, path="b.py")
    assert books.sample("slipstream_file_prefilled_again_tokens_count", model="m") is None
    assert books.history.placing(await gap("x", path="")) is None
    assert len(books.history) == 2


async def test_a_request_that_ends_late_does_not_hide_a_newer_one() -> None:
    books = Books()
    old, new = await gap(FILE + "old"), await gap(FILE * 2 + "new", path="a.py")
    placed_old = books.history.placing(old)
    books.now += 1.0
    placed_new = books.history.placing(new)
    assert placed_old is not None
    assert placed_new is not None
    for prepared, placing in ((new, placed_new), (old, placed_old)):
        books.history.computed(prepared, placing, ONE, Usage(prepared.prompt_tokens, 5, 64))
    known = books.history.placing(new)
    assert known is not None
    assert known.before is not None
    assert known.before.hashes == new.chain.hashes


async def test_memory_is_bounded_and_the_oldest_files_go() -> None:
    books = Books(limit_bytes=5_000)
    for number in range(40):
        await books.typed(FILE, cached=64, path=f"{number}.py")
    assert 1 <= len(books.history) <= 10
    latest = books.history.placing(await gap(FILE, path="39.py"))
    first = books.history.placing(await gap(FILE, path="0.py"))
    assert latest is not None
    assert latest.before is not None
    assert first is not None
    assert first.before is None


# through the pipeline


async def typed(platform: Harness, prefix: str, client: Client | None = None) -> InferenceRequest:
    """A gap as Continue's Mistral provider asks for it, served to its end."""
    wire_format, where = FimFormat(RequestConfig()), target(CODE, context_tokens=2_000)
    arrival = Arrival(wire_format, {})
    asked = wire_format.decode(msgspec.json.encode({"model": "m", "prompt": prefix, "suffix": "\n", "max_tokens": 8}))
    prepared = await wire_format.prepare(asked, arrival.request_id, KEY.caller, "salt", where)
    request = InferenceRequest(arrival, KEY, where, prepared)
    client = client or Client()
    await platform.run(request, client)
    return request


@pytest.mark.parametrize("status", [200, 500])
async def test_the_router_is_told_the_file_and_metrics_what_was_cached(status: int) -> None:
    async with harness(engines=1, driver="embedded") as platform:
        platform.script(tokens=2, prompt_tokens=500, cached_tokens=448, status=status)
        first = await typed(platform, FILE + "x")
        platform.script(tokens=2, prompt_tokens=501, cached_tokens=490)
        await typed(platform, FILE + "xy")
        platform.require_balanced()

        assert {ask.affinity for ask in platform.router.asks} == {first.prepared.file} != {b""}
        seen = platform.sample("slipstream_file_prefilled_again_tokens_sum", model="m")
        assert seen == (11 if status == 200 else None), "what no engine has computed was not seen"
        kept = platform.sample("slipstream_kv_survival_total", pool="pool", kv="kept")
        assert kept == (1 if status == 200 else None)
