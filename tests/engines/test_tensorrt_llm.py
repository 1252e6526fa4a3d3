"""The `tensorrt_llm` driver against a server that behaves as `trtllm-serve` does, in both of its generations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import Model, Pool, Replica
from contracts.errors import ConfigError, ContextTooLong, EngineFailed, EngineRefused, UnsupportedField
from contracts.generation import BACKGROUND_PRIORITY, Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from contracts.service_class import ServiceClass
from control.billing.reconciliation import EngineCounters
from control.fleet.servable import check_pool, check_served
from engines.drivers import registry as drivers
from engines.drivers.base import EngineRequest, Load
from engines.drivers.counters import EngineCounts
from engines.drivers.tensorrt_llm import TensorRTLLMDriver, unit_priority
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from router.config import RouterConfig
from router.core.events import ReplicaPolled
from router.health import HealthPoller, Target
from tests.fakes.tensorrt_llm import KNOWN, NEWER, WINDOW, FakeTensorRTLLM, fake_tensorrt_llm
from tests.fakes.tensorrt_llm import Generation as Era
from tests.fakes.tensorrt_llm_front import fake_front
from tests.virtual_time import in_virtual_time
from tests.waiting import eventually

CHAT = "/v1/chat/completions"
SAID = ({"role": "user", "content": "hi"},)


def asked(prompt: ChatPrompt | TextPrompt | None = None, **fields: Any) -> Generation:
    defaults: dict[str, Any] = {"sampling": Sampling(max_tokens=7), "cache_salt": "salt"}
    return Generation(
        request_id="req_1", caller=Caller("o", "p", "k"), tier=Tier.CHAT, model="public-name",
        prompt=prompt or ChatPrompt(SAID), **{**defaults, **fields},
    )  # fmt: skip


EVERYTHING = asked(
    ChatPrompt(
        SAID,
        tools=({"type": "function", "function": {"name": "f"}},),
        tool_choice="auto",
        parallel_tool_calls=True,
        response_format={"type": "json_object"},
        reasoning_effort="low",
    ),
    sampling=Sampling(
        max_tokens=7, n=2, temperature=0.5, top_p=0.5, seed=1, frequency_penalty=0.1, presence_penalty=0.1,
        stop=("a",), min_tokens=2, stop_ids=(3,), logit_bias={"5": 1.0}, logprobs=2,
    ),
    priority=-10,
)  # fmt: skip


@pytest.fixture(params=["1.2", "1.4"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[tuple[FakeTensorRTLLM, str]]:
    era: Era = request.param
    async with fake_tensorrt_llm(era, disconnect_poll_s=0.01, silence_s=0.05) as running:
        yield running


async def fetch(url: str, request: EngineRequest) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(request.method, url + request.path, data=request.body or None) as answer,
    ):
        return answer.status, await answer.read()


async def until_gone(url: str) -> None:
    """Return once nobody listens there."""
    with contextlib.suppress(aiohttp.ClientConnectionError):
        while True:
            await fetch(url, TensorRTLLMDriver().health())


async def test_all_that_a_request_can_say_is_taken(server: tuple[FakeTensorRTLLM, str]) -> None:
    fake, url = server
    newer = fake.generation == "1.4"
    driver = TensorRTLLMDriver(request_priorities=newer)
    status, answer = await fetch(url, driver.generate(EVERYTHING, "llama-70b"))
    assert status == 200, answer
    (seen,) = fake.asked
    assert seen.body["max_tokens"] == 7, "without it the server keeps memory for the whole window"
    assert seen.body["cache_salt"] == "salt"
    assert (seen.body["min_tokens"], seen.body["stop_token_ids"]) == (2, [3])
    assert seen.body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert seen.body.get("priority") == (pytest.approx(0.5 - 0.5 * 10 / 11) if newer else None), "of -10, as a number"
    assert "parallel_tool_calls" not in seen.body


async def test_a_priority_is_refused_by_a_server_that_knows_none(server: tuple[FakeTensorRTLLM, str]) -> None:
    fake, url = server
    request = TensorRTLLMDriver(request_priorities=True).generate(asked(priority=1), "llama-70b")
    assert (await fetch(url, request))[0] == (200 if fake.generation == "1.4" else 400)


async def test_classes_are_floats_between_nought_and_one_on_the_wire_in_their_order() -> None:
    async with fake_tensorrt_llm("1.4", disconnect_poll_s=0.01) as (fake, url):
        driver = TensorRTLLMDriver(request_priorities=True)
        for each in (BACKGROUND_PRIORITY, *(one.priority for one in ServiceClass)):
            status, answer = await fetch(url, driver.generate(asked(priority=each), "llama-70b"))
            assert status == 200, answer
        sent = [seen.body.get("priority", 0.5) for seen in fake.asked]
    assert all(isinstance(each, float) for each in sent)
    assert sent == sorted(set(sent)), "the higher goes first there"
    assert "priority" not in fake.asked[2].body, "standard says nothing, which the server takes for its middle"
    assert sent == pytest.approx([0.5 / 1001, 0.5 / 11, 0.5, 10.5 / 11])


@pytest.mark.parametrize("prompt", [TextPrompt(("a",)), TextPrompt(((1, 2),)), TextPrompt(("a",), suffix="b")])
def test_a_text_to_continue_is_refused_for_its_cache_would_be_shared(prompt: TextPrompt) -> None:
    with pytest.raises(UnsupportedField, match="chat completions only"):
        TensorRTLLMDriver().generate(asked(prompt), "m")
    assert "cache_salt" not in KNOWN["/v1/completions"] | NEWER["/v1/completions"]


@pytest.mark.parametrize(
    ("prompt", "param"),
    [(ChatPrompt(SAID, tool_choice="required"), "tool_choice"), (ChatPrompt(SAID, parallel_tool_calls=False), None)],
)
def test_what_it_cannot_keep_is_refused_by_name(prompt: ChatPrompt, param: str | None) -> None:
    with pytest.raises(UnsupportedField) as caught:
        TensorRTLLMDriver().generate(asked(prompt), "m")
    assert caught.value.param == (param or "parallel_tool_calls")


@given(one=st.integers(-1_000, 1_000), other=st.integers(-1_000, 1_000))
def test_priorities_keep_their_order_between_its_bounds(one: int, other: int) -> None:
    assert 0 <= unit_priority(one) <= 1
    assert (unit_priority(one) < unit_priority(other)) is (one < other)
    assert unit_priority(0) == 0.5


def test_drafts_of_every_iteration_since_the_last_report_are_added_up() -> None:
    iterations: list[dict[str, object]] = [
        {
            "numActiveRequests": 2,
            "numQueuedRequests": 0,
            "specDecodingStats": {"numDraftTokens": 8, "numAcceptedTokens": 5},
        },
        {"numActiveRequests": 3, "numQueuedRequests": 1},
        {
            "numActiveRequests": 1,
            "numQueuedRequests": 0,
            "specDecodingStats": {"numDraftTokens": 4, "numAcceptedTokens": 1},
        },
    ]
    load = drivers.get("tensorrt_llm").parse_load(msgspec.json.encode(iterations))
    assert load is not None
    assert (load.running, load.draft_tokens, load.accepted_draft_tokens) == (1, 12, 6)


def test_whom_each_iteration_paused_is_a_retraction() -> None:
    """No level: who was paused is not paused again by the next, so the sum is what came to it."""
    iterations = [
        {"numActiveRequests": 2, "numQueuedRequests": 0, "inflightBatchingStats": {"numPausedRequests": paused}}
        for paused in (0, 2, 1, 0)
    ]
    load = TensorRTLLMDriver().parse_load(msgspec.json.encode(iterations))
    assert load is not None
    assert (load.retracted_since, load.retracted) == (3, 0)


async def test_load_is_that_of_the_last_iteration_and_told_once(server: tuple[FakeTensorRTLLM, str]) -> None:
    fake, url = server
    driver = TensorRTLLMDriver()
    assert driver.parse_load((await fetch(url, driver.load() or driver.health()))[1]) is None
    fake.script.held = True
    async with aiohttp.ClientSession() as session:
        request = driver.generate(asked(), "llama-70b")
        answer = await session.post(url + request.path, data=request.body)
        fake.go_on()
        await answer.content.readuntil(b" t0")
        load = driver.parse_load((await fetch(url, EngineRequest("GET", "/metrics")))[1])
        running = Load(running=1, used_tokens=320, capacity_tokens=32_000, max_running=64)
        assert load == (running if fake.generation == "1.2" else None)  # 1.4 tells when a request has ended
        assert driver.parse_load((await fetch(url, EngineRequest("GET", "/metrics")))[1]) is None
        fake.go_on(9)
        await answer.read()
    await fake.asked[-1].ended.wait()
    idle = Load(running=0, capacity_tokens=32_000, max_running=64)
    assert driver.parse_load((await fetch(url, EngineRequest("GET", "/metrics")))[1]) == idle
    assert driver.parse_load((await fetch(url, EngineRequest("GET", "/metrics")))[1]) is None
    for body in (b"", b"3", b"[3]", b"[{}]", b'[{"numActiveRequests":"x","numQueuedRequests":0}]'):
        with pytest.raises(EngineFailed):
            driver.parse_load(body)


async def test_what_is_told_once_is_told_to_the_router_alone(server: tuple[FakeTensorRTLLM, str]) -> None:
    """Reconciliation asks the same engine meanwhile, and takes nothing away."""
    fake, url = server
    pool = Pool("trt", "tensorrt_llm", (Replica("trt-0", url),), api_key_required=False)
    keys = EngineKeys(lambda: "token", {})
    keys.follow([pool])
    connections = EngineConnections(keys)
    loads: list[Load] = []

    def heard(polled: ReplicaPolled) -> None:
        loads.extend([polled.load] if polled.load is not None else [])

    poller = HealthPoller(RouterConfig(poll_interval_s=0.05), connections, drivers.get, heard)
    poller.follow({"trt-0": Target(url, "tensorrt_llm", "trt")})
    reconcile = EngineCounters(lambda: keys)
    try:
        for _ in range(3):
            request = TensorRTLLMDriver().generate(asked(), "llama-70b")
            await asyncio.gather(fetch(url, request), reconcile([(pool, pool.replicas[0])]))
        await eventually(lambda: not fake.untold and len(loads) == fake.drained)
    finally:
        await poller.stop()
        await connections.close()
    assert loads


async def test_tokens_are_counted_by_the_newer_alone(server: tuple[FakeTensorRTLLM, str]) -> None:
    fake, url = server
    driver = TensorRTLLMDriver()
    fake.script.cached_tokens = 5
    for _ in range(2):
        await fetch(url, driver.generate(asked(), "llama-70b"))
    status, page = await fetch(url, driver.counts())
    assert status == 200
    if fake.generation == "1.4":
        assert driver.parse_counts(page) == EngineCounts(14, 10, 8)
    else:
        with pytest.raises(EngineFailed, match="counts no tokens"):
            driver.parse_counts(page)


def test_counters_that_cannot_be_read_are_said() -> None:
    with pytest.raises(EngineFailed, match="cannot be read"):
        TensorRTLLMDriver().parse_counts(b"trtllm_prompt_tokens_total{} many\n")


def error(message: str, status: int = 400) -> Exception:
    body = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}
    return TensorRTLLMDriver().error(status, msgspec.json.encode(body))


def test_its_own_failures_are_not_the_clients() -> None:
    failed = error("'NoneType' object has no attribute 'request_id'")
    assert isinstance(failed, EngineFailed)
    assert "NoneType" not in failed.message
    assert isinstance(error("Requests failed: executor is shutting down"), EngineFailed)


@pytest.mark.parametrize(
    "said",
    [
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Only user and assistant roles are supported!",
        "suffix is not supported",
        "top_p must be in (0, 1]",
    ],
)
def test_what_a_template_refuses_is_the_clients(said: str) -> None:
    assert isinstance(error(said), EngineRefused)


async def test_what_it_finds_invalid_is(server: tuple[FakeTensorRTLLM, str]) -> None:
    _, url = server
    request = EngineRequest("POST", CHAT, msgspec.json.encode({"model": "m", "messages": SAID, "store": True}))
    status, body = await fetch(url, request)
    assert isinstance(TensorRTLLMDriver().error(status, body), EngineRefused)


@pytest.mark.parametrize(
    "said",
    [
        "The sum of prompt length (5000.0), query length (0) should not exceed max_num_tokens (4096)",
        "The sum of prompt length (5000.0) and query length (0) max_tokens (7) should not exceed max_seq_len (4096)",
        "`default_max_tokens` (-904) must be greater than 0, `default_max_tokens` (-904) = max_seq_len (4096) - "
        "`splited_prompt_len` (5000) - `query_token_len` (0)",
    ],
)
def test_a_prompt_that_is_too_long_is_said_in_our_words(said: str) -> None:
    too_long = error(said)
    assert isinstance(too_long, ContextTooLong)
    assert "4,096" in too_long.message or "4096" in too_long.message
    assert "5,000" in too_long.message or "5000" in too_long.message


def of_front(said: str) -> Exception:
    """What the driver makes of a front's 500."""
    return TensorRTLLMDriver().error(500, msgspec.json.encode({"detail": f"Internal server error {said}".strip()}))


def test_what_a_front_answers_with_500_is_the_clients_where_its_words_say_so() -> None:
    too_long = of_front(
        '400, message=\'Bad Request: {"object":"error","message":"The sum of prompt length (5000.0) and query length '
        '(0) max_tokens (7) should not exceed max_seq_len (4096)","type":"BadRequestError","param":null,"code":400}\', '
        "url='http://10.0.0.21:8001/v1/chat/completions'"
    )
    assert isinstance(too_long, ContextTooLong)
    refused = of_front("400, message='Bad Request: {\"message\":\"top_p must be in (0, 1]\"}', url='http://10.0.0.21'")
    assert isinstance(refused, EngineRefused)
    assert refused.message == "top_p must be in (0, 1]"
    for said in (
        "Disagg server returned more than one choice. This is currently not supported in disaggregated server.",
        "Context server returned 2 choices, expecting 1.",
    ):
        several = of_front(said)
        assert isinstance(several, UnsupportedField)
        assert several.param == "n"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Cluster is not ready",
        "Cannot connect to host 10.0.0.21:8001 ssl:default [Connect call failed]",
        '400, message=\'Bad Request: {"object":"error","message":"list index out of range"}\', url=\'http://a\'',
    ],
)
def test_what_failed_behind_a_front_is_the_engines(said: str) -> None:
    failed = of_front(said)
    assert isinstance(failed, EngineFailed)
    assert failed.message == "The engine answered with status 500."
    assert said in (failed.detail or "")


@pytest.mark.parametrize("era", ["1.2", "1.4"])
async def test_a_front_has_health_and_neither_load_nor_counts(era: Era) -> None:
    """Placement counts its own leases there; the router asks all the same and takes no answer for none."""
    driver = TensorRTLLMDriver()
    async with fake_tensorrt_llm(era) as (_, worker), fake_front(era, [worker], [worker]) as (front, url):
        keys = EngineKeys(lambda: "token", {})
        keys.follow([Pool("trt", "tensorrt_llm", (Replica("trt-0", url),), api_key_required=False)])
        connections = EngineConnections(keys)
        told: asyncio.Queue[ReplicaPolled] = asyncio.Queue()
        poller = HealthPoller(
            RouterConfig(poll_interval_s=0.05, recovery_interval_s=0.05), connections, drivers.get, told.put_nowait
        )
        poller.follow({"trt-0": Target(url, "tensorrt_llm", "trt")})
        try:
            polled = await told.get()
            assert (polled.healthy, polled.load) == (True, None)
            front.ready = False
            while polled.healthy:
                polled = await told.get()
            assert polled.detail == f"health check answered {503 if era == '1.4' else 500}"
        finally:
            await poller.stop()
            await connections.close()
        status, page = await fetch(url, driver.counts())
        assert status == (200 if era == "1.4" else 404)
        with pytest.raises(EngineFailed, match="counts no tokens"):
            driver.parse_counts(page)


@pytest.mark.parametrize("era", ["1.2", "1.4"])
async def test_a_prompt_that_is_too_long_behind_a_front(era: Era) -> None:
    """The newer front tells what its context server said; the older nothing, so that it is the engine's failure."""
    async with fake_tensorrt_llm(era) as (_, worker), fake_front(era, [worker], [worker]) as (_, url):
        long = ChatPrompt(({"role": "user", "content": "word " * WINDOW},))
        status, body = await fetch(url, TensorRTLLMDriver().generate(asked(long), "m"))
    assert status == 500
    assert isinstance(TensorRTLLMDriver().error(status, body), ContextTooLong if era == "1.4" else EngineFailed)


async def test_a_server_ends_with_its_executor(server: tuple[FakeTensorRTLLM, str]) -> None:
    fake, url = server
    assert (await fetch(url, TensorRTLLMDriver().health()))[0] == 200
    fake.script.executor_dies = True
    assert await fetch(url, TensorRTLLMDriver().generate(asked(), "m")) == (200, b"null")
    await fake.died.wait()
    await until_gone(url)


async def test_a_server_whose_executor_is_dead_is_not_healthy(server: tuple[FakeTensorRTLLM, str]) -> None:
    fake, url = server
    fake.healthy = False
    status, said = await fetch(url, TensorRTLLMDriver().health())
    assert (status, said) == (503, b"LLM is unavailable. Please check the server logs for more details.")


async def test_without_an_end_requests_run_one_after_another(server: tuple[FakeTensorRTLLM, str]) -> None:
    """Why the driver always names one: memory for the whole window is kept for whoever names none."""
    fake, url = server
    fake.script.held = True
    unbounded = msgspec.json.encode({"model": "m", "messages": SAID, "stream": True})
    bounded = msgspec.json.encode({"model": "m", "messages": SAID, "stream": True, "max_tokens": 7})
    for body, running in ((unbounded, 1), (bounded, 2)):
        async with aiohttp.ClientSession() as session:
            answers = [await session.post(url + CHAT, data=body) for _ in range(2)]
            assert (fake.queue.running, fake.queue.waiting) == (running, 2 - running)
            for answer in answers:
                answer.close()
        for seen in fake.asked:
            await seen.ended.wait()


async def test_of_those_that_wait_the_higher_priority_goes_first() -> None:
    async with fake_tensorrt_llm("1.4", disconnect_poll_s=0.01, max_batch=1) as (fake, url):
        driver = TensorRTLLMDriver(request_priorities=True)
        fake.script.held = True
        async with aiohttp.ClientSession() as session:
            answers = [
                await session.post(url + CHAT, data=driver.generate(asked(priority=each), "m").body)
                for each in (0, -10, 10)
            ]
            answers[0].close()
            await fake.asked[0].ended.wait()
            fake.go_on()
            assert await answers[2].content.readuntil(b" t0")
            assert fake.asked[1].tokens == 0
            for answer in answers:
                answer.close()


@pytest.mark.parametrize("era", ["1.2", "1.4"])
@in_virtual_time  # a loop that is held up takes the time between two tokens for a silence
async def test_the_older_tells_its_load_once_nothing_has_come_for_a_while(era: Era) -> None:
    async with fake_tensorrt_llm(era, disconnect_poll_s=0.01, silence_s=0.05) as (fake, url):
        fake.script = msgspec.structs.replace(fake.script, tokens=7, token_s=0.02)
        request = TensorRTLLMDriver().generate(asked(), "m")
        async with aiohttp.ClientSession() as session:
            answer = await session.post(url + request.path, data=request.body)
            told = msgspec.json.decode((await fetch(url, EngineRequest("GET", "/metrics")))[1])
            assert bool(fake.asked[0].ended.is_set()) is (era == "1.2")
            assert bool(told) is (era == "1.2")
            await answer.read()


def test_a_pool_that_cannot_work_stops_the_start(tmp_path: Path) -> None:
    replicas = (Replica("r", "http://10.0.0.1:8000"),)
    with pytest.raises(ConfigError, match="checks no API key"):
        check_pool(Pool("p", "tensorrt_llm", replicas))
    pool = Pool("p", "tensorrt_llm", replicas, api_key_required=False, request_priorities=True)
    check_pool(pool)
    check_pool(Pool("p", "tensorrt_llm", replicas, api_key_file=str(tmp_path / "key")))
    assert drivers.of_pool(pool).capabilities == drivers.get("tensorrt_llm").capabilities
    check_served(Model("m", Tier.CHAT, "p", 4_096), pool)
    with pytest.raises(ConfigError, match="can serve only the tier 'chat'"):
        check_served(Model("m", Tier.AUTOCOMPLETE, "p", 4_096), pool)
