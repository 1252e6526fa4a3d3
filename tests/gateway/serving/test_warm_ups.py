"""Prompts computed ahead: on the replica that answered, in the books, and out of everyone's way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from contracts.errors import EngineFailed, Overloaded, RouterUnavailable
from contracts.generation import BACKGROUND_PRIORITY
from contracts.usage import Finish, Outcome
from engines.tokenizer.tokenizer import Tokenizer
from gateway.limits.cost import Cost
from gateway.metering.journal.records import Closed
from gateway.serving.request import Arrival, InferenceRequest
from gateway.wire.config import RequestConfig
from gateway.wire.format import WireFormat
from gateway.wire.llama_cpp.format import InfillFormat
from gateway.wire.mistral.format import FimFormat
from gateway.wire.openai.format import CompletionFormat
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import GUARD_S, KEY, Harness, harness
from tests.gateway.wire.openai.preparing import target
from tests.psm_model import write_psm_model

FIM, COMPLETION, INFILL = (kind(RequestConfig()) for kind in (FimFormat, CompletionFormat, InfillFormat))
FILE, OTHER = ("".join(f"import {name}_{number}\n" for number in range(99)) for name in ("one", "other"))
AFTER = "\n\n\ndef other():\n    return 2\n"


@pytest.fixture(scope="module")
def psm(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_psm_model(tmp_path_factory.mktemp("models") / "psm"))


class Editor:
    """Asks for gaps, one file each, of a platform whose engines say ` t0 t1`."""

    def __init__(self, platform: Harness, tokenizer: Tokenizer, **model: Any) -> None:
        self.platform = platform
        self.where = target(tokenizer, context_tokens=2_000, **model)

    async def types(self, prefix: str, file: str = FILE, wire_format: WireFormat[Any] = FIM, **fields: Any) -> Client:
        """One request, served to its end."""
        body = {"model": "m", "prompt": file + prefix, "suffix": AFTER, "max_tokens": 8, **fields}
        if wire_format is INFILL:
            body = {"input_prefix": file, "prompt": prefix, "input_suffix": AFTER, "n_predict": 8, **fields}
        arrival = Arrival(wire_format, {})
        asked = wire_format.decode(msgspec.json.encode(body))
        prepared = await wire_format.prepare(asked, arrival.request_id, KEY.caller, "salt", self.where)
        request = InferenceRequest(arrival, KEY, self.where, prepared)
        client = Client()
        async with asyncio.timeout(GUARD_S):
            await self.platform.run(request, client)
        assert client.answer.status == 200
        return client

    async def rests_behind(self, prefix: str, **asked: Any) -> Client:
        """Serve one request as `types` does, and let what follows it end."""
        client = await self.types(prefix, **asked)
        await self.rests()
        return client

    async def rests(self) -> None:
        """Return once nothing is computed ahead any more."""
        async with asyncio.timeout(GUARD_S):
            while tasks := self.platform.serving.warm_ups._tasks:
                await asyncio.wait(tasks)

    def at_each_ask(self, *acts: dict[str, Any] | Callable[[], object]) -> None:
        """What happens as the router is asked for the first time, the second, and so on: a script for the engines, or
        whatever else."""
        left = list(acts)

        def act() -> None:
            now = left.pop(0)
            if left:
                self.platform.faults.calls["acquire"] = act
            if isinstance(now, dict):
                self.platform.script(**now)
            else:
                now()

        self.platform.faults.calls["acquire"] = act

    async def asked(self, requests: int) -> None:
        """Return once the first engine has been sent so many."""
        await self.platform.engine_has(requests=requests)

    def outcomes(self) -> dict[str, float]:
        kinds = ("computed", "superseded", "refused", "unpaid", "failed")
        found = {kind: self.platform.sample("slipstream_warm_ups_total", model="m", outcome=kind) for kind in kinds}
        return {kind: count for kind, count in found.items() if count}

    @property
    def bodies(self) -> list[Any]:
        """What the engines were asked, in order."""
        records = [record for engine in self.platform.engines for record in engine.records.values()]
        return [msgspec.json.decode(record.body) for record in records]


@contextlib.asynccontextmanager
async def editing(psm: Tokenizer, engines: int = 1, **model: Any) -> AsyncIterator[Editor]:
    async with harness(engines=engines, driver="embedded") as platform:
        platform.script(tokens=2, prompt_tokens=70)
        yield Editor(platform, psm, **model)
        await platform.serving.stop()
        platform.require_balanced()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire_format", [FIM, INFILL])
async def test_behind_an_answer_the_next_line_is_computed_on_the_same_replica(
    psm: Tokenizer, stream: bool, wire_format: WireFormat[Any]
) -> None:
    async with editing(psm, engines=2) as editor:
        await editor.rests_behind("x =", stream=stream, wire_format=wire_format)

        assert editor.outcomes() == {"computed": 1}
        real, ahead = editor.platform.router.asks
        assert (ahead.idle_replica, ahead.deadline_s, ahead.affinity) == ("engine-0", 0.0, real.affinity)
        assert real.idle_replica == ""
        asked, computed = editor.bodies
        assert computed["max_tokens"] == 1
        assert computed["priority"] == BACKGROUND_PRIORITY
        assert "priority" not in asked
        tokenizer = editor.where.tokenizer
        assert tokenizer is not None
        expected = tokenizer.tokenizer.fill_ids(FILE + "x = t0 t1\n", AFTER)
        assert computed["prompt"] == expected or computed["prompt"] == [expected]


async def test_it_is_in_the_books_and_on_nobodys_bill(psm: Tokenizer) -> None:
    async with editing(psm) as editor:
        await editor.rests_behind("x =")

        platform = editor.platform
        real, ahead = platform.journal.records
        assert (real.opened.endpoint, real.billed) == ("fim", True)
        assert (ahead.opened.endpoint, ahead.billed, ahead.status) == ("warm_up", False, 200)
        assert (ahead.finish, ahead.outcome, ahead.replica_id) == (Finish.COMPLETE, Outcome.EXACT, "engine-0")
        assert (ahead.usage.prompt_tokens, ahead.usage.completion_tokens) == (70, 1)
        assert ahead.opened.request_id != real.opened.request_id
        assert platform.limiter.used == {real.opened.request_id: (Cost(70, 2, 72), False)}
        assert platform.sample("slipstream_tokens_total", tier="chat", kind="prompt") == 70
        assert len(platform.traces.seen) == 1
        assert platform.sample("slipstream_file_prefilled_again_tokens_count", model="m") is None


@pytest.mark.parametrize("file", [FILE, OTHER], ids=["the file's next keystroke", "another file"])
async def test_a_request_that_is_given_its_replica_goes_first(psm: Tokenizer, file: str) -> None:
    async with editing(psm) as editor:
        editor.at_each_ask({}, {"hang": True}, {"hang": False})
        await editor.types("x =")
        await editor.asked(2)
        await editor.rests_behind("x = 1", file=file)

        assert editor.outcomes() == {"superseded": 1, "computed": 1}
        ends = {record.opened.request_id: record for record in editor.platform.journal.records}
        first, ahead, second, last = (ends[ask.request_id] for ask in editor.platform.router.asks)
        assert (ahead.finish, ahead.billed, ahead.opened.endpoint) == (Finish.CLIENT_GONE, False, "warm_up")
        assert [first.billed, second.billed, last.billed] == [True, True, False]
        assert editor.platform.engines[0].records[ahead.opened.request_id].aborted, "by id, so that its count is exact"
        assert ahead.outcome is Outcome.EXACT


@pytest.mark.parametrize(("file", "superseded"), [(FILE, 1), (OTHER, 0)])
async def test_on_another_replica_only_its_own_file_is_in_its_way(psm: Tokenizer, file: str, superseded: int) -> None:
    async with editing(psm, engines=2) as editor:
        editor.at_each_ask({}, {"hang": True}, {"hang": False}, {})
        await editor.types("x =")
        await editor.asked(2)
        router = editor.platform.router
        router.engines = router.engines[::-1]
        await editor.types("y =", file=file)
        running = set(editor.platform.serving.warm_ups._by_replica)
        assert ("engine-0" not in running) == bool(superseded)
        await editor.platform.serving.stop()
        assert sum(editor.outcomes().values()) == 2
        assert router.asks[-1].idle_replica == "engine-1"


@pytest.mark.parametrize(
    ("refusal", "outcome"),
    [(Overloaded("busy"), "refused"), (RouterUnavailable("away"), "refused"), (EngineFailed("torn"), "failed")],
)
async def test_a_replica_that_is_not_idle_is_left_alone(psm: Tokenizer, refusal: Exception, outcome: str) -> None:
    async with editing(psm) as editor:
        faults = editor.platform.faults
        editor.at_each_ask({}, lambda: faults.raises.update(acquire=refusal))
        await editor.rests_behind("x =")
        assert editor.outcomes() == {outcome: 1}
        assert [record.opened.endpoint for record in editor.platform.journal.records] == ["fim"], "it leaves no row"


async def test_an_engine_that_fails_it_is_told_to_the_router_alone(psm: Tokenizer) -> None:
    async with editing(psm) as editor:
        editor.at_each_ask({}, {"status": 500})
        await editor.rests_behind("x =")
        assert editor.outcomes() == {"failed": 1}
        assert [end.engine_fault for end in editor.platform.router.ends] == [False, True]
        assert editor.platform.traces.seen == [(200, None)]


async def test_a_script_that_asks_for_cached_gaps_gets_no_more_computed_than_it_pays_for(psm: Tokenizer) -> None:
    """Each prompt was computed ahead by the one before, and costs a tenth: what follows would be free for ever."""
    async with editing(psm) as editor:
        limits = editor.platform.limiter
        for number in range(30):
            editor.at_each_ask({"prompt_tokens": 100, "cached_tokens": 100 if number else 0}, {"cached_tokens": 0})
            await editor.rests_behind(f"x{number} =")
            editor.platform.faults.calls.clear()
        paid = sum(record.usage.prompt_tokens - 0.9 * record.usage.cached_tokens for record in _billed(editor, True))
        free = sum(record.usage.prompt_tokens for record in _billed(editor, False))
        assert (len(limits.used), round(paid)) == (30, 390)
        assert 200 <= free <= paid + 100
        assert editor.outcomes()["unpaid"] >= 25


async def test_an_answer_from_another_requests_text_has_nothing_computed(psm: Tokenizer) -> None:
    async with editing(psm) as editor:
        await editor.rests_behind("x =", wire_format=INFILL)
        continued = await editor.rests_behind("x = t0", wire_format=INFILL)
        assert continued.answer.json["content"] == " t1"
        assert editor.outcomes() == {"computed": 1}


def _billed(editor: Editor, billed: bool) -> list[Closed]:
    return [record for record in editor.platform.journal.records if record.billed is billed]


async def test_a_model_that_does_not_want_it_has_none(psm: Tokenizer) -> None:
    async with editing(psm, fim={"warm_up": False}) as editor:
        await editor.types("x =")
        assert len(editor.platform.router.asks) == 1


async def test_a_stop_ends_it_and_closes_its_books(psm: Tokenizer) -> None:
    async with editing(psm) as editor:
        editor.at_each_ask({}, {"hang": True})
        await editor.types("x =")
        await editor.asked(2)
        await editor.platform.serving.stop()
        assert editor.outcomes() == {"superseded": 1}
        assert len(editor.platform.journal.records) == 2
