"""What is so of LoRA adapters on every real engine that loads them: held against each by a subclass at its server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple
from uuid import uuid4

import msgspec
import pytest

from contracts.errors import AdapterUnavailable
from contracts.generation import TextPrompt
from contracts.prefix import BLOCK_TOKENS
from engines.drivers.error_bodies import usage_of
from tests.adapted_engine import (
    PROMPT,
    AdaptedFleet,
    Adapters,
    adapted_fleet,
    cached,
    generation,
    load,
    new_prompt,
    says,
    unload,
)
from tests.real_engine import RealEngine, ask, finishes, payloads, read_all
from tests.router.fakes import GUARD_S
from tests.waiting import eventually

LENGTH = 300
"""Tokens of a prompt: four whole blocks, and some that are never shared."""
BLOCKS = LENGTH // BLOCK_TOKENS
LONG = 300
"""Tokens of an answer that is under way for a while."""


class Served(NamedTuple):
    """An engine with room for two adapters. token: what it asks for. kv_events: where it publishes them."""

    engine: RealEngine
    token: str
    made: Adapters
    kv_events: str

    def fleet(self, most: int, kv_events: str = "") -> contextlib.AbstractAsyncContextManager[AdaptedFleet]:
        """Router and loader before it. most: adapters per replica."""
        engine = self.engine
        return adapted_fleet(engine.driver, engine.url, self.token, engine.model, most, kv_events)


class AdapterFacts:
    """served: a fixture of the subclass's module."""

    unknown_status = 0
    """What unloading one that is not there is answered with."""
    reads_again = False
    """A request for one that was unloaded has it loaded again, from where it lay."""

    @pytest.fixture(autouse=True)
    async def nothing_is_loaded(self, served: Served) -> None:
        """What an earlier test has loaded is not there any more."""
        for adapter in served.made.adapters.values():
            await unload(served.engine, adapter)

    async def test_answers_are_those_of_the_merged_models(self, served: Served) -> None:
        engine, (adapters, merged) = served.engine, served.made
        assert await load(engine, adapters["a"]) is None
        assert await load(engine, adapters["a"]) is None, "it holds it already"
        assert await load(engine, adapters["b"]) is None
        plain = await says(engine, None)
        assert [await says(engine, adapters[name]) for name in "ab"] == [merged[name] for name in "ab"]
        assert await says(engine, None) == plain
        assert len({plain, merged["a"], merged["b"]}) == 3

    async def test_one_that_was_never_loaded_is_told_apart_from_other_errors(self, served: Served) -> None:
        # by a name of its own: engines may remember where those of other tests lay
        adapter = msgspec.structs.replace(served.made.adapters["c"], id=str(uuid4()))
        assert isinstance(await served.engine.refusal(generation(adapter)), AdapterUnavailable)
        assert await unload(served.engine, adapter) == self.unknown_status

    async def test_a_path_that_is_not_there_is_refused(self, served: Served) -> None:
        engine = served.engine
        asked = engine.driver.load_adapter("lora-none", "/nowhere/at-all")
        assert engine.driver.load_refusal(*await engine.fetch(asked))

    async def test_one_that_is_unloaded_can_be_loaded_again(self, served: Served) -> None:
        engine, (adapters, merged) = served.engine, served.made
        assert await load(engine, adapters["a"]) is None
        assert await unload(engine, adapters["a"]) == 200
        if self.reads_again:
            assert await says(engine, adapters["a"]) == merged["a"]
            assert await unload(engine, adapters["a"]) == 200
        else:
            assert isinstance(await engine.refusal(generation(adapters["a"])), AdapterUnavailable)
        assert await load(engine, adapters["c"]) is None
        assert await says(engine, adapters["c"]) == merged["c"]
        assert await load(engine, adapters["a"]) is None
        assert await says(engine, adapters["a"]) == merged["a"]

    async def test_a_request_outlives_the_unloading_of_its_adapter(self, served: Served) -> None:
        engine, (adapters, merged) = served.engine, served.made
        assert await load(engine, adapters["a"]) is None
        endless = ask(TextPrompt((PROMPT,)), max_tokens=LONG, logit_bias={"5": 100.0})
        stream, body = await engine.begun(msgspec.structs.replace(endless, adapter=adapters["a"]))
        unloading = asyncio.create_task(unload(engine, adapters["a"]))
        events = payloads(body + await read_all(stream))
        assert (finishes(events), usage_of(events[-2]["usage"]).completion_tokens) == (["length"], LONG)
        assert await unloading == 200
        assert await load(engine, adapters["b"]) is None
        assert await says(engine, adapters["b"]) == merged["b"]

    async def test_a_prefix_is_shared_by_one_adapter_only(self, served: Served) -> None:
        engine, adapters, prompt = served.engine, served.made.adapters, new_prompt(LENGTH)
        for name in "ab":
            assert await load(engine, adapters[name]) is None
        for adapter in (adapters["a"], adapters["b"], None):
            assert await cached(engine, adapter, prompt) == 0
        for adapter in (adapters["a"], adapters["b"], None):
            assert await cached(engine, adapter, prompt) >= BLOCK_TOKENS

    async def test_it_is_loaded_on_demand_and_asked_for_where_it_is(self, served: Served) -> None:
        adapters, merged = served.made
        async with served.fleet(most=2) as fleet:
            first = await fleet.ask(adapters["a"])
            assert (first.text, first.lease.load_adapter) == (merged["a"], True)
            for _ in range(4):
                again = await fleet.ask(adapters["a"], new_prompt(LENGTH))
                assert (again.record.chosen, again.lease.load_adapter) == (first.record.chosen, False)
            # the other replica serves as well, were it asked to
            other = await fleet.ask(adapters["a"], excluded=(first.record.chosen,))
            assert (other.text, other.lease.load_adapter) == (merged["a"], True)
            assert other.record.chosen != first.record.chosen

    async def test_one_gives_up_its_place_for_another_and_comes_back(self, served: Served) -> None:
        engine, (adapters, merged) = served.engine, served.made
        async with served.fleet(most=1) as fleet:
            asked = {name: await fleet.ask(adapters[name], excluded=("two",)) for name in "abca"}
            assert {name: one.text for name, one in asked.items()} == merged
            evicted = [one.lease.evict_adapter for one in asked.values()]
            assert evicted == [adapters[name].engine_name for name in "cab"]
            assert await unload(engine, adapters["b"]) == await unload(engine, adapters["c"]) == self.unknown_status

    async def test_its_blocks_are_not_taken_for_the_models(self, served: Served) -> None:
        engine, adapter = served.engine, served.made.adapters["a"]
        async with served.fleet(2, served.kv_events) as fleet, asyncio.timeout(GUARD_S):
            await fleet.ask(adapter, excluded=("two",))
            while True:  # a subscriber hears nothing of what was published before it had joined
                prompt = new_prompt(LENGTH)
                await cached(engine, adapter, prompt)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await eventually(lambda prompt=prompt: fleet.blocks(adapter, prompt) == BLOCKS)  # type: ignore[misc, arg-type]
                    break
            assert fleet.blocks(None, prompt) == 0
            plain = new_prompt(LENGTH)
            await cached(engine, None, plain)
            await eventually(lambda: fleet.blocks(None, plain) == BLOCKS)
            assert fleet.blocks(adapter, plain) == 0
