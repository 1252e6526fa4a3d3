"""A small model that answers first: what the client gets, what the books say, and that nothing it does fails."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.cascade import Approval, Cascade
from contracts.cascade_digest import measured
from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import JournalUnavailable, Overloaded
from contracts.generation import Tier
from contracts.lease import Lease, LeaseRequest
from contracts.usage import Finish
from gateway.limits.cost import Cost
from gateway.serving.request import Arrival, InferenceRequest
from tests.examples import examples
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import CHAT, COMPLETION, GUARD_S, KEY, PRICE, Harness, body, harness
from tests.virtual_time import in_virtual_time

WHOLE, STREAM = body(), body(stream=True)
TENFOLD = msgspec.structs.replace(PRICE, model="big", input_micro=10_000_000, output_micro=10_000_000)


class Cascading:
    """A platform with one engine for each of two models: `big`, which clients ask for, and `small`."""

    def __init__(self, platform: Harness, cascade: Cascade) -> None:
        self.platform = platform
        self.small, self.big = platform.engines
        first, second = platform.places
        places = {
            "small": msgspec.structs.replace(first, pool="small", model="small-engine"),
            "big": msgspec.structs.replace(second, pool="big", model="big-engine"),
        }
        router = platform.router
        original = router.acquire

        async def acquire(ask: LeaseRequest) -> Lease:
            router.engines = (places[ask.model],)
            return await original(ask)

        router.acquire = acquire  # type: ignore[method-assign]
        self.cascade = cascade
        self.request: InferenceRequest

    def state(self, *, approve: bool = True, cascade: Cascade | None = None) -> DesiredState:
        cascade = cascade or self.cascade
        pools = tuple(Pool(name, "sglang", (Replica(name, "http://x"),)) for name in ("small", "big"))
        big = Model("big", Tier.CHAT, "big", 4_096, aliases=("m",), cascade=cascade)
        state = DesiredState(1, (big, Model("small", Tier.CHAT, "small", 2_048)), pools)
        if not approve:
            return state
        cascade = msgspec.structs.replace(cascade, approval=Approval("c", measured(state, big), -0.01))
        return msgspec.structs.replace(state, models=(msgspec.structs.replace(big, cascade=cascade), state.models[1]))

    def script(self, **engines: dict[str, Any]) -> None:
        """What each engine does from now on."""
        for name, script in engines.items():
            {"small": self.small, "big": self.big}[name].control(msgspec.json.encode({"prompt_tokens": 7} | script))

    async def serve(
        self, asked: bytes = STREAM, client: Client | None = None, *, measured: bool = False, wire_format: Any = CHAT
    ) -> Client:
        """One request, as the endpoint would hand it over."""
        platform, client = self.platform, client or Client()
        target = platform.catalog.find("big", lambda _: True)
        arrival = Arrival(wire_format, {})
        decoded = wire_format.decode(asked)

        async def prepare(target: Any) -> Any:
            return await wire_format.prepare(decoded, arrival.request_id, KEY.caller, "salt", target)

        prepared = await prepare(target)
        self.request = request = InferenceRequest(arrival, KEY, target, prepared)
        request.first = await platform.cascades.first(target, prepared, prepare, measured=measured)
        async with asyncio.timeout(GUARD_S):
            await platform.run(request, client)
        return client

    @property
    def rows(self) -> list[tuple[str, Finish, str | None, bool]]:
        """Model, finish, error, billed of every attempt."""
        return [(r.opened.model, r.finish, r.error_code, r.billed) for r in self.platform.journal.records]

    @property
    def settled(self) -> Cost:
        return self.platform.limiter.used[self.request.request_id][0]

    def outcomes(self) -> dict[str, float]:
        kinds = ("unapproved", "not_busy", "rule", "kept", "unsure", "too_long", "late", "failed", "client_gone")
        found = {
            kind: self.platform.sample("slipstream_cascade_requests_total", model="big", outcome=kind) for kind in kinds
        }
        return {kind: count for kind, count in found.items() if count}


@contextlib.asynccontextmanager
async def cascading(
    approve: bool = True, gateway: dict[str, Any] | None = None, **rules: Any
) -> AsyncIterator[Cascading]:
    """rules: fields of `Cascade`; the fake engines tell every token a probability of exp(-0.5) = 0.607. A deadline of
    the small model's that decides is named, in virtual time."""
    usual = {"first": "small", "when": "always", "min_confidence": 0.5, "timeout_s": GUARD_S}
    cascade = msgspec.convert(usual | rules, Cascade)
    async with harness(engines=2, **(gateway or {})) as platform:
        running = Cascading(platform, cascade)
        prices = platform.prices
        prices.replace([msgspec.structs.replace(PRICE, model="small"), TENFOLD])
        await platform.catalog.load(running.state(approve=approve))
        running.script(small={"tokens": 3}, big={"tokens": 5})
        yield running
        await platform.engines_idle()
        assert platform.limiter.settled == platform.limiter.reserved
        assert {r.key for r in platform.journal.records} == set(platform.journal.opened_keys)
        assert [end.lease_id for end in platform.router.ends] == list(platform.router.granted)
        assert sum(r.billed for r in platform.journal.records) <= len(platform.limiter.reserved)
        assert not platform.idle._waits
        platform.catalog.close()


def text_of(client: Client) -> str:
    answer = client.answer
    if answer.headers["content-type"] == "application/json":
        return str(answer.json["choices"][0]["message"]["content"])
    return "".join(c["delta"].get("content") or "" for e in answer.events[:-1] for c in e["choices"])


@pytest.mark.parametrize("asked", [WHOLE, STREAM])
async def test_the_small_models_answer_is_given_and_billed_as_its_own(asked: bytes) -> None:
    async with cascading() as to:
        answer = (client := await to.serve(asked)).answer
        assert (answer.status, answer.complete, text_of(client)) == (200, True, " t0 t1 t2")
        assert answer.headers["x-slipstream-answered-by"] == "small"
        assert {e["model"] for e in answer.events[:-1]} == {"big"} if asked is STREAM else answer.json["model"] == "big"
        assert answer.body.count(b"logprob") == answer.body.count(b'"logprobs":null')
        assert to.rows == [("small", Finish.COMPLETE, None, True)]
        assert to.settled == Cost(7, 3, 10)
        assert to.outcomes() == {"kept": 1}
        assert to.big.requests == 0
        assert to.platform.traces.measured[0].pool == "small"


@pytest.mark.parametrize("asked", [WHOLE, STREAM])
@pytest.mark.parametrize(
    ("rules", "outcome"),
    [({"min_confidence": 0.61}, "unsure"), ({"max_first_tokens": 2}, "too_long")],
)
async def test_what_is_not_good_enough_is_thrown_away_and_the_large_model_answers(
    asked: bytes, rules: dict[str, Any], outcome: str
) -> None:
    async with cascading(**rules) as to:
        answer = (client := await to.serve(asked)).answer
        assert (answer.status, text_of(client)) == (200, " t0 t1 t2 t3 t4")
        assert answer.headers["x-slipstream-answered-by"] == "big"
        thrown = ("small", Finish.COMPLETE, "handed_over", False)
        assert to.rows == [thrown, ("big", Finish.COMPLETE, None, True)]
        assert to.settled == Cost(7, 5, 120), "limits count the attempt that answered, as they do of any retry"
        assert to.outcomes() == {outcome: 1}


@pytest.mark.parametrize("asked", [WHOLE, STREAM])
@pytest.mark.parametrize(
    "script",
    [
        {"status": 500},
        {"status": 429},
        {"status": 400},
        {"die_after_tokens": 0},
        {"die_after_tokens": 2},
        {"error_after_tokens": 1},
        {"abort_after_tokens": 1},
    ],
)
async def test_no_fault_of_the_small_model_reaches_the_client(asked: bytes, script: dict[str, Any]) -> None:
    async with cascading() as to:
        to.script(small={"tokens": 3} | script)
        client = await to.serve(asked)
        assert (client.answer.status, text_of(client)) == (200, " t0 t1 t2 t3 t4")
        assert [(model, billed) for model, _, _, billed in to.rows] == [("small", False), ("big", True)]
        assert to.settled == Cost(7, 5, 120)
        assert to.outcomes() == {"failed": 1}


@pytest.mark.parametrize("script", [{"hang": True}, {"tokens": 3, "hang_after_tokens": 2}])
@in_virtual_time
async def test_a_small_model_that_hangs_is_left_at_the_deadline(script: dict[str, Any]) -> None:
    async with cascading(timeout_s=0.05) as to:
        to.script(small=script)
        client = await to.serve()
        assert text_of(client) == " t0 t1 t2 t3 t4"
        assert to.rows == [
            ("small", Finish.ENGINE_ERROR, "handed_over", False),
            ("big", Finish.COMPLETE, None, True),
        ]
        assert to.outcomes() == {"late": 1}
        assert all(record.aborted or record.disconnected for record in to.small.records.values())


async def test_no_place_at_the_small_model_is_no_refusal() -> None:
    async with cascading() as to:
        to.platform.faults.raises["acquire"] = Overloaded("shed", retry_after_s=1)
        client = await to.serve()
        assert text_of(client) == " t0 t1 t2 t3 t4"
        assert to.rows[0] == ("small", Finish.NOT_PLACED, "overloaded", False)


async def test_books_of_a_kept_answer_that_cannot_be_closed_are_not_answered_twice() -> None:
    async with cascading() as to:
        to.platform.faults.raises["closed"] = JournalUnavailable("disk full", retry_after_s=1)
        client = await to.serve(WHOLE)
        assert client.answer.status == 503
        assert to.big.requests == 0
        assert to.rows == [("small", Finish.COMPLETE, None, True)]


@pytest.mark.parametrize("step", ["reserve", "acquire", "placed", "closed"])
async def test_a_client_that_leaves_while_the_small_model_has_it_pays_nothing(step: str) -> None:
    async with cascading() as to:
        client = Client()
        to.platform.faults.calls[step] = client.leave
        await to.serve(client=client)
        assert not any(billed for model, _, _, billed in to.rows if step != "closed")
        assert to.big.requests == 0
        assert to.settled.micro == (10 if step == "closed" else 0) if to.rows else True


async def test_a_client_that_leaves_while_the_small_model_writes() -> None:
    async with cascading() as to:
        to.script(small={"tokens": 3, "hang_after_tokens": 2})
        client = Client()
        serving = asyncio.create_task(to.serve(client=client))
        await to.platform.engine_has(requests=1)
        client.leave()
        await serving
        assert to.rows == [("small", Finish.CLIENT_GONE, None, False)]
        assert to.big.requests == 0
        assert to.outcomes() == {"client_gone": 1}
        assert to.settled.micro == 0
        assert client.sent == b""


async def test_a_client_that_leaves_while_the_large_model_writes_pays_for_that() -> None:
    async with cascading(min_confidence=0.9) as to:
        to.script(big={"tokens": 5, "inter_token_s": 0.01})
        client = Client(leave_at_write=3)
        await to.serve(client=client)
        small, big = to.rows
        assert small == ("small", Finish.COMPLETE, "handed_over", False)
        assert (big[0], big[1], big[3]) == ("big", Finish.CLIENT_GONE, True)
        usage = to.platform.journal.records[1].usage
        assert to.settled == Cost(usage.prompt_tokens, usage.completion_tokens, 10 * usage.total_tokens)


@pytest.mark.parametrize("step", ["opened", "acquire", "placed", "closed"])
async def test_a_client_that_leaves_once_the_large_model_was_asked(step: str) -> None:
    async with cascading(min_confidence=0.9) as to:
        client, faults = Client(), to.platform.faults

        def second() -> None:
            faults.calls[step] = client.leave

        faults.calls["closed"] = lambda: faults.calls.update({step: second if step == "closed" else client.leave})
        await to.serve(client=client)
        assert to.rows[0] == ("small", Finish.COMPLETE, "handed_over", False)
        assert len([row for row in to.rows if row[0] == "big"]) <= 1
        billed = [record.usage for record in to.platform.journal.records if record.billed]
        assert to.settled.micro == sum(10 * usage.total_tokens for usage in billed)


@in_virtual_time
async def test_a_client_that_leaves_while_a_late_small_model_is_stopped() -> None:
    async with cascading(timeout_s=0.02, gateway={"abort_drain_s": 5.0}) as to:
        to.script(small={"tokens": 3, "hang_after_tokens": 2})
        client, stopping = Client(), asyncio.Event()
        stop = to.platform.connections.fetch

        async def stopped(*args: Any, **named: Any) -> Any:
            client.leave()
            stopping.set()
            return await stop(*args, **named)

        to.platform.connections.fetch = stopped  # type: ignore[method-assign]
        await to.serve(client=client)
        assert stopping.is_set()
        assert to.big.requests == 0
        assert [(model, billed) for model, _, _, billed in to.rows] == [("small", False)]


async def test_an_engine_that_tells_no_probabilities_is_never_sure() -> None:
    async with cascading(min_confidence=0.01) as to:
        control = to.platform.serving.generator._driver

        def silent(engine: Any) -> Any:
            return _NoLogprobs(control(engine))

        to.platform.serving.generator._driver = silent
        client = await to.serve()
        assert (text_of(client), to.outcomes()) == (" t0 t1 t2 t3 t4", {"unsure": 1})


class _NoLogprobs:
    """A dialect whose engines leave log probabilities out."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def generate(self, generation: Any, engine_model: str) -> Any:
        sampling = msgspec.structs.replace(generation.sampling, logprobs=None)
        return self._driver.generate(msgspec.structs.replace(generation, sampling=sampling), engine_model)


async def test_reservations_cover_either_model() -> None:
    async with cascading() as to:
        asked: list[Cost] = []
        reserve = to.platform.limiter.reserve

        async def noting(*args: Any) -> Any:
            asked.append(args[-1])
            return await reserve(*args)

        to.platform.limiter.reserve = noting  # type: ignore[method-assign, assignment]
        await to.serve(body(max_tokens=50))
        (cost,) = asked
        bound = to.request.prepared.prompt_tokens_bound
        assert (cost.output_tokens, cost.micro) == (50, 10 * (bound + 50))


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"logprobs": True},
        {"logit_bias": {"5": 1}},
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"messages": [{"role": "user", "content": "x" * 4_000}]},
    ],
)
async def test_rules_send_a_request_straight_to_the_large_model(fields: dict[str, Any]) -> None:
    async with cascading(max_prompt_tokens=1_000) as to:
        client = await to.serve(body(**fields))
        assert client.answer.headers["x-slipstream-answered-by"] == "big"
        assert to.small.requests == 0
        assert to.outcomes() == {"rule": 1}


async def test_a_text_prompt_goes_straight_to_the_large_model() -> None:
    async with cascading() as to:
        await to.serve(b'{"model":"big","prompt":"x"}', wire_format=COMPLETION)
        assert (to.small.requests, to.outcomes()) == (0, {"rule": 1})


async def test_what_is_too_long_for_the_small_model_alone_goes_straight_to_the_large_one() -> None:
    async with cascading(max_prompt_tokens=4_000) as to:
        client = await to.serve(body(messages=[{"role": "user", "content": "x" * 9_000}], max_tokens=10))
        assert client.answer.status == 200


async def test_without_an_approval_only_what_measures_it_is_answered_by_it() -> None:
    async with cascading(approve=False) as to:
        assert (await to.serve()).answer.headers["x-slipstream-answered-by"] == "big"
        assert (await to.serve(measured=True)).answer.headers["x-slipstream-answered-by"] == "small"
        assert to.outcomes() == {"unapproved": 1, "kept": 1}
        assert to.platform.sample("slipstream_cascade_approved", model="big") == 0


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        (lambda s: _models(s, lambda m: msgspec.structs.replace(m, aliases=())), True),
        (lambda s: _pools(s, replicas=(Replica("new", "http://y"),)), True),
        (lambda s: _cascade(s, when="busy"), True),
        (lambda s: _cascade(s, min_confidence=0.4), False),
        (lambda s: _cascade(s, max_first_tokens=9), False),
        (lambda s: _models(s, lambda m: msgspec.structs.replace(m, engine_model="other")), False),
        (lambda s: _pools(s, driver="openai"), False),
    ],
)
async def test_an_approval_is_of_what_was_compared(change: Callable[[DesiredState], DesiredState], stays: bool) -> None:
    async with cascading() as to:
        await to.platform.catalog.load(change(to.state()))
        found = to.platform.catalog.approved(to.platform.catalog.find("big", lambda _: True))
        assert found is stays
        assert to.platform.sample("slipstream_cascade_approved", model="big") == float(stays)


def _models(state: DesiredState, change: Callable[[Model], Model]) -> DesiredState:
    return msgspec.structs.replace(state, models=tuple(map(change, state.models)))


def _pools(state: DesiredState, **changes: Any) -> DesiredState:
    return msgspec.structs.replace(state, pools=tuple(msgspec.structs.replace(p, **changes) for p in state.pools))


def _cascade(state: DesiredState, **changes: Any) -> DesiredState:
    big, small = state.models
    assert big.cascade is not None
    cascade = msgspec.structs.replace(big.cascade, **changes)
    return msgspec.structs.replace(state, models=(msgspec.structs.replace(big, cascade=cascade), small))


async def test_a_cascade_for_spikes_is_asked_only_while_requests_wait() -> None:
    async with cascading(when="busy") as to:
        assert (await to.serve()).answer.headers["x-slipstream-answered-by"] == "big"
        to.platform.faults.raises["acquire"] = Overloaded("shed", retry_after_s=1)
        assert (await to.serve()).answer.status == 503
        assert (await to.serve()).answer.headers["x-slipstream-answered-by"] == "small"
        assert to.outcomes() == {"not_busy": 2, "kept": 1}


def masked(client: Client, request_id: str) -> bytes:
    return client.answer.body.replace(request_id.removeprefix("req_").encode(), b"ID")


@examples(nightly=25)
@given(
    small=st.integers(1, 6),
    big=st.integers(1, 6),
    split=st.sampled_from(["event", "byte", "joined"]),
    stream=st.booleans(),
    usage=st.booleans(),
    sure=st.booleans(),
    die_after=st.integers(-1, 3),
)
def test_the_clients_bytes_are_those_of_the_model_that_answered(
    small: int, big: int, split: str, stream: bool, usage: bool, sure: bool, die_after: int
) -> None:
    async def run() -> None:
        options = {"stream_options": {"include_usage": usage}} if stream else {}
        asked = body(stream=stream, max_tokens=16, **options)
        async with cascading(min_confidence=0.5 if sure else 0.7) as to:
            to.script(
                small={"tokens": small, "split": split, "die_after_tokens": die_after},
                big={"tokens": big, "split": split},
            )
            client = await to.serve(asked)
            got = masked(client, to.request.request_id)
            by = client.answer.headers["x-slipstream-answered-by"]
            assert by == ("small" if sure and not 0 <= die_after <= small else "big") or die_after >= small
            # the same from that engine alone
            to.script(big={"tokens": small if by == "small" else big, "split": split})
            await to.platform.catalog.load(to.state(approve=False))
            alone = await to.serve(asked)
            assert alone.answer.headers["x-slipstream-answered-by"] == "big"
            assert _timeless(got) == _timeless(masked(alone, to.request.request_id))

    in_virtual_time(run)()


def _timeless(sent: bytes) -> bytes:
    """Without the second in which the engine was asked."""
    return re.sub(rb'"created":\d+', b'"created":0', sent)
