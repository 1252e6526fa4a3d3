"""A real engine process, spoken to with the `openai` package and with plain HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
import zmq
import zmq.asyncio
from prometheus_client.parser import text_string_to_metric_families

from contracts.desired_state import Pool, Replica
from contracts.generation import Tier
from engines.drivers import registry as drivers
from engines.embedded.config import SchedulerConfig
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from engines.tokenizer.tokenizer import Tokenizer
from router.core.decisions import ProbeGeneration
from router.core.events import GenerationProbed, Probe
from router.generation_probe import GenerationProber
from router.health import Target
from tests.deployment import free_port
from tests.engines.embedded.tiny import SHIPPED

TOKEN = "secret"
START = """
import sys, msgspec
from engines.embedded.config import EngineConfig
from engines.embedded.server import main
import logging; logging.basicConfig(level=logging.INFO)
main(msgspec.json.decode(sys.argv[1], type=EngineConfig), token=sys.argv[2], metrics_token="metrics")
"""


class Process:
    """One engine process on a port of its own."""

    def __init__(self, start: str = START, **config: Any) -> None:
        arguments = json.dumps({"port": 0, **config})
        self.child = subprocess.Popen(
            [sys.executable, "-c", start, arguments, TOKEN],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self.child.stderr is not None
        self.log: list[str] = []
        self.url = ""
        for line in self.child.stderr:
            self.log.append(line)
            if "listening on " in line:
                self.url = line.split("listening on ")[1].strip()
                break

    def end(self) -> str:
        """Wait for it; the rest of its log."""
        _, rest = self.child.communicate(timeout=60)
        return "".join(self.log) + rest


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts engines; what is left at the end is killed."""
    processes: list[Process] = []

    def starter(**config: Any) -> Process:
        processes.append(Process(**config))
        return processes[-1]

    yield starter
    for process in processes:
        process.child.kill()
        process.child.communicate()


@pytest.fixture(scope="module")
def chat_engine() -> Iterator[Process]:
    process = Process(model=str(SHIPPED / "slipstream-chat"), scheduler={"max_running": 8, "max_queued": 8})
    yield process
    process.child.kill()
    process.child.communicate()


@pytest.fixture(scope="module")
def code_engine() -> Iterator[Process]:
    process = Process(
        model=str(SHIPPED / "slipstream-code"), speculation={"method": "ngram", "governed": False, "ngram_least": 1}
    )
    yield process
    process.child.kill()
    process.child.communicate()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {TOKEN}"}) as session:
        yield session


async def healthy(process: Process) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{process.url}/health") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.05)


@pytest.fixture
async def chat(chat_engine: Process) -> AsyncIterator[openai.AsyncOpenAI]:
    await healthy(chat_engine)
    async with openai.AsyncOpenAI(base_url=f"{chat_engine.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


@pytest.fixture
async def code(code_engine: Process) -> AsyncIterator[openai.AsyncOpenAI]:
    await healthy(code_engine)
    async with openai.AsyncOpenAI(base_url=f"{code_engine.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
ENDLESS = {"ignore_eos": True}


async def test_a_chat_answer_whole(chat: openai.AsyncOpenAI) -> None:
    answer = await chat.chat.completions.create(model="slipstream-chat", messages=QUESTION, temperature=0)
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 8)  # the end token counts


async def test_a_chat_answer_streamed_is_the_same_and_ends_with_usage(chat: openai.AsyncOpenAI) -> None:
    stream = await chat.chat.completions.create(
        model="slipstream-chat", messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "The capital of France is Paris."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_running_usage_grows_by_the_tokens_generated(chat: openai.AsyncOpenAI) -> None:
    stream = await chat.chat.completions.create(
        model="slipstream-chat",
        messages=QUESTION,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    )
    counts = [chunk.usage.completion_tokens async for chunk in stream if chunk.usage]
    assert counts == sorted(counts)
    assert counts[-1] == 8


async def test_a_prompt_asked_again_is_reported_as_cached(code: openai.AsyncOpenAI) -> None:
    async def cached(salt: str) -> list[int]:
        stream = await code.completions.create(
            model="slipstream-code",
            prompt=list(range(100, 164)),
            max_tokens=4,
            stream=True,
            extra_body={
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
                "cache_salt": salt,
            },
        )
        details = [chunk.usage.prompt_tokens_details async for chunk in stream if chunk.usage]
        return [found.cached_tokens or 0 for found in details if found]

    assert set(await cached("a")) == {0}
    assert set(await cached("a")) == {48}  # whole pages of 16, and the last token is always computed
    assert set(await cached("b")) == {0}


async def test_guesses_are_counted_and_a_request_can_refuse_them(
    code_engine: Process, code: openai.AsyncOpenAI, session: aiohttp.ClientSession
) -> None:
    async def ask(speculation: bool) -> tuple[str, float]:
        answer = await code.completions.create(
            model="slipstream-code",
            prompt=[300, 301, 302] * 8,
            max_tokens=40,
            temperature=0,
            extra_body={"speculation": speculation, "ignore_eos": True},
        )
        async with session.get(f"{code_engine.url}/metrics") as metrics:
            lines = (await metrics.text()).splitlines()
        (drafts,) = [line for line in lines if line.startswith("sglang:spec_drafts_total{")]
        return answer.choices[0].text, float(drafts.rpartition(" ")[2])

    before = (await ask(False))[1]
    assert (await ask(False))[1] == before
    assert (await ask(True))[1] > before
    async with session.get(f"{code_engine.url}/server_info") as answer:
        assert (await answer.json())["internal_states"][0]["avg_spec_accept_length"] >= 1


async def test_a_gap_is_filled_by_the_models_template(code: openai.AsyncOpenAI) -> None:
    before, after = "import os\nimport ", "\n\ndef main():\n"
    ids = Tokenizer.load(SHIPPED / "slipstream-code").fill_ids(before, after)
    by_text = await code.completions.create(
        model="slipstream-code", prompt=before, suffix=after, max_tokens=8, temperature=0
    )
    by_ids = await code.completions.create(model="slipstream-code", prompt=ids, max_tokens=8, temperature=0)
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_text.usage is not None
    assert by_text.usage.prompt_tokens == len(ids)


async def test_several_prompts_as_text_and_as_ids(code: openai.AsyncOpenAI) -> None:
    texts = await code.completions.create(
        model="slipstream-code", prompt=["import ", "def "], max_tokens=4, temperature=0
    )
    assert [choice.index for choice in texts.choices] == [0, 1]
    assert texts.usage is not None
    assert texts.usage.completion_tokens == 8
    ids = await code.completions.create(
        model="slipstream-code", prompt=[[5, 6, 7], [8]], max_tokens=4, n=2, temperature=0
    )
    assert len(ids.choices) == 4
    assert ids.choices[0].text == ids.choices[1].text
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 4


async def test_echo_gives_the_prompt_back(code: openai.AsyncOpenAI) -> None:
    answer = await code.completions.create(
        model="slipstream-code", prompt="import os", echo=True, max_tokens=2, temperature=0
    )
    assert answer.choices[0].text.startswith("import os")


async def test_log_probabilities(chat: openai.AsyncOpenAI, code: openai.AsyncOpenAI) -> None:
    answer = await chat.chat.completions.create(
        model="slipstream-chat", messages=QUESTION, temperature=0, logprobs=True, top_logprobs=2, max_tokens=2
    )
    content = answer.choices[0].logprobs
    assert content is not None
    assert content.content is not None
    assert [entry.token for entry in content.content] == ["The", " capital"]
    assert content.content[0].top_logprobs[0].token == "The"
    completion = await code.completions.create(model="slipstream-code", prompt="import os", logprobs=3, max_tokens=2)
    assert completion.choices[0].logprobs is not None
    assert completion.choices[0].logprobs.top_logprobs is not None
    assert len(completion.choices[0].logprobs.top_logprobs[0]) == 3


async def test_a_control_string_in_user_text_stays_text(chat: openai.AsyncOpenAI) -> None:
    plain = await chat.chat.completions.create(model="slipstream-chat", messages=QUESTION, max_tokens=1)
    messages: list[Any] = [{"role": "user", "content": "What is the capital of France?<|end|>"}]
    marked = await chat.chat.completions.create(model="slipstream-chat", messages=messages, max_tokens=1)
    assert plain.usage is not None
    assert marked.usage is not None
    assert marked.usage.prompt_tokens > plain.usage.prompt_tokens + 1


@pytest.mark.parametrize(
    ("change", "param", "status"),
    [
        ({"foo": 1}, "foo", 400),
        ({"temperature": -1}, "temperature", 400),
        ({"max_tokens": "x"}, "max_tokens", 400),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", 400),
        ({"response_format": {"type": "xml"}}, "response_format.type", 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", 400),
        ({"max_tokens": 5000}, "max_tokens", 400),
        ({"model": "other"}, "model", 404),
        ({"logit_bias": {"99999": 1}}, "logit_bias", 400),
    ],
)
async def test_what_is_wrong_is_refused_by_name(
    chat_engine: Process, session: aiohttp.ClientSession, change: dict[str, Any], param: str, status: int
) -> None:
    await healthy(chat_engine)
    body = {"model": "slipstream-chat", "messages": QUESTION, **change}
    async with session.post(f"{chat_engine.url}/v1/chat/completions", json=body) as answer:
        error = await answer.json()
        assert answer.status == error["code"] == status
        assert error["object"] == "error"
        assert error["param"] == param
        assert error["message"]


async def test_only_health_is_open_without_the_token(chat_engine: Process) -> None:
    await healthy(chat_engine)
    async with aiohttp.ClientSession() as session:
        for path in ("/metrics", "/v1/models", "/v1/loads", "/get_model_info", "/usage?rid=x", "/nowhere"):
            async with session.get(chat_engine.url + path) as answer:
                assert answer.status == 401, path
        async with session.get(f"{chat_engine.url}/v1/models", headers={"authorization": "Bearer wrong"}) as answer:
            assert answer.status == 401


async def test_the_metrics_port_shows_the_same_without_a_token(start: Callable[..., Process]) -> None:
    port = free_port()
    engine = start(model=str(SHIPPED / "slipstream-chat"), metrics={"port": port})
    await healthy(engine)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            open_text = await answer.text()
        async with session.get(f"{engine.url}/metrics", headers={"authorization": "Bearer metrics"}) as answer:
            guarded_text = await answer.text()

    def names(text: str) -> set[str]:
        return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE sglang:")}

    assert names(open_text) == names(guarded_text) != set()


async def test_the_metrics_token_opens_counters_and_nothing_that_computes_or_tells(chat_engine: Process) -> None:
    await healthy(chat_engine)
    body = {"model": "slipstream-chat", "messages": QUESTION, "max_tokens": 1}
    async with aiohttp.ClientSession(headers={"authorization": "Bearer metrics"}) as session:
        for path in ("/health", "/metrics", "/v1/loads"):
            async with session.get(chat_engine.url + path) as answer:
                assert answer.status == 200, path
        for method, path in (
            ("POST", "/abort_request"), ("POST", "/flush_cache"), ("GET", "/usage?rid=x"), ("GET", "/v1/models"),
            ("GET", "/server_info"),
        ):  # fmt: skip
            async with session.request(method, chat_engine.url + path, json=body) as answer:
                assert answer.status == 403, path
                assert (await answer.json())["message"] == "The metrics token opens load, metrics and probes only."
        for path in ("/v1/chat/completions", "/v1/completions"):
            async with session.post(chat_engine.url + path, json=body) as answer:
                assert answer.status == 403, path


PROBE = {"model": "slipstream-chat", "max_tokens": 1, "rid": "probe_1"}
ONE = [{"role": "user", "content": "1"}]


@pytest.mark.parametrize(
    ("extra", "status"),
    [
        ({}, 200), ({"stream": True}, 200),
        ({"max_tokens": 2}, 403), ({"n": 2}, 403), ({"rid": "req_of_a_client"}, 403), ({"cache_salt": "org_1"}, 403),
        ({"messages": [{"role": "user", "content": "123456789"}]}, 403), ({"messages": ONE * 2}, 403),
        ({"regex": "a"}, 403), ({"logprobs": True}, 403), ({"tools": []}, 403), ({"priority": 9}, 403),
        ({"response_format": {"type": "json_object"}}, 403), ({"model": "x" * 2_000}, 413),
    ],
)  # fmt: skip
async def test_the_metrics_token_opens_one_token_and_no_more(
    chat_engine: Process, extra: dict[str, Any], status: int
) -> None:
    await healthy(chat_engine)
    async with (
        aiohttp.ClientSession(headers={"authorization": "Bearer metrics"}) as session,
        session.post(f"{chat_engine.url}/v1/chat/completions", json={"messages": ONE, **PROBE, **extra}) as answer,
    ):
        assert answer.status == status, await answer.text()


@pytest.mark.parametrize("tier", list(Tier))
async def test_the_routers_probe_finds_an_embedded_engine_well(chat_engine: Process, tier: Tier) -> None:
    """With the keys that `slipstream router` has, over the engine's own port."""
    await healthy(chat_engine)
    pool = Pool("p", "embedded", (Replica("r", chat_engine.url),))
    keys = EngineKeys(lambda: TOKEN, {}, lambda: "metrics")
    keys.follow((pool,))
    connections, heard = EngineConnections(keys), asyncio.Queue[GenerationProbed]()
    prober = GenerationProber(connections, drivers.get, heard.put_nowait)
    try:
        prober.probe(ProbeGeneration("r", "slipstream-chat", tier), Target(chat_engine.url, "embedded", "p"))
        outcome = await asyncio.wait_for(heard.get(), 60)
        assert outcome.probe is Probe.WELL, outcome.detail
    finally:
        await prober.stop()
        await connections.close()


async def stream_of(session: aiohttp.ClientSession, url: str, rid: str, **change: Any) -> aiohttp.ClientResponse:
    body = {
        "model": "slipstream-chat",
        "messages": QUESTION,
        "stream": True,
        "stream_options": {"include_usage": True},
        "rid": rid,
        "ignore_eos": True,
        "max_tokens": 2000,
        **change,
    }
    return await session.post(f"{url}/v1/chat/completions", json=body)


async def events(answer: aiohttp.ClientResponse) -> list[Any]:
    lines = [line async for line in answer.content if line.startswith(b"data: ")]
    assert lines[-1].strip() == b"data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


async def usage_of(session: aiohttp.ClientSession, url: str, rid: str) -> tuple[int, Any]:
    async with session.get(f"{url}/usage", params={"rid": rid}) as answer:
        return answer.status, await answer.json()


async def test_an_abort_ends_the_stream_with_the_exact_count(
    chat_engine: Process, session: aiohttp.ClientSession
) -> None:
    await healthy(chat_engine)
    answer = await stream_of(session, chat_engine.url, "req_abort")
    await answer.content.readline()
    async with session.post(f"{chat_engine.url}/abort_request", json={"rid": "req_abo"}) as aborted:
        assert aborted.status == 200
    chunks = await events(answer)
    assert chunks[-2]["choices"][0]["finish_reason"] == "abort"
    count = chunks[-1]["usage"]["completion_tokens"]
    assert 0 < count < 2000
    assert await usage_of(session, chat_engine.url, "req_abort") == (
        200,
        {"rid": "req_abort", "usage": chunks[-1]["usage"]},
    )


async def test_a_client_that_leaves_aborts_its_request(chat_engine: Process, session: aiohttp.ClientSession) -> None:
    await healthy(chat_engine)
    answer = await stream_of(session, chat_engine.url, "req_gone")
    await answer.content.readline()
    answer.close()
    status, found = await usage_of(session, chat_engine.url, "req_gone")
    assert status == 200
    assert 0 < found["usage"]["completion_tokens"] < 2000


async def test_usage_of_an_unknown_request_is_404(chat_engine: Process, session: aiohttp.ClientSession) -> None:
    await healthy(chat_engine)
    status, error = await usage_of(session, chat_engine.url, "nobody")
    assert (status, error["object"]) == (404, "error")


async def test_a_full_queue_answers_503_and_an_id_in_use_400(
    chat_engine: Process, session: aiohttp.ClientSession
) -> None:
    await healthy(chat_engine)
    first = await stream_of(session, chat_engine.url, "req_full", n=16)
    await first.content.readline()
    async with await stream_of(session, chat_engine.url, "req_more") as second:
        assert second.status == 503
        assert second.headers["retry-after"]
    async with await stream_of(session, chat_engine.url, "req_full") as again:
        assert again.status in (400, 503)
    async with session.get(f"{chat_engine.url}/v1/loads") as answer:
        load = (await answer.json())["loads"][0]
        assert load["num_running_reqs"] + load["num_waiting_reqs"] == 16
        assert load["num_running_reqs"] <= 8
    async with session.post(f"{chat_engine.url}/abort_request", json={"abort_all": True}):
        pass
    assert (
        len([chunk for chunk in await events(first) if chunk["choices"] and chunk["choices"][0]["finish_reason"]]) == 16
    )


async def test_flushing_the_cache_forgets_a_prompt(code_engine: Process, session: aiohttp.ClientSession) -> None:
    async def cached() -> int:
        body = {"model": "slipstream-code", "prompt": list(range(300, 364)), "max_tokens": 1}
        async with session.post(f"{code_engine.url}/v1/completions", json=body) as answer:
            return int((await answer.json())["usage"]["prompt_tokens_details"]["cached_tokens"])

    await cached()
    assert await cached() == 48
    async with session.post(f"{code_engine.url}/flush_cache") as answer:
        assert (answer.status, await answer.text()) == (200, "Cache flushed.\n")
    assert await cached() == 0


async def test_metrics_have_sglangs_names(chat_engine: Process, session: aiohttp.ClientSession) -> None:
    await healthy(chat_engine)
    async with session.get(f"{chat_engine.url}/metrics") as answer:
        body = await answer.text()
    for name in (
        "num_running_reqs",
        "num_queue_reqs",
        "token_usage",
        "generation_tokens_total",
        "cache_hit_rate",
        "kv_evictable_tokens",
        "num_retracted_reqs",
        "num_retracted_requests_total",
    ):
        assert f'sglang:{name}{{model_name="slipstream-chat"}}' in body
    assert "sglang:time_to_first_token_seconds_bucket" in body


async def test_stages_of_a_request_are_told(chat_engine: Process, session: aiohttp.ClientSession) -> None:
    await healthy(chat_engine)

    async def counts() -> dict[str, float]:
        async with session.get(f"{chat_engine.url}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        (stages,) = [one for one in families if one.name == "sglang:per_stage_req_latency_seconds"]
        return {one.labels["stage"]: one.value for one in stages.samples if one.name.endswith("_count")}

    async def ask(prompt: list[int]) -> None:
        body = {"model": "slipstream-chat", "prompt": prompt, "max_tokens": 2, "cache_salt": uuid.uuid4().hex}
        async with session.post(f"{chat_engine.url}/v1/completions", json=body) as answer:
            assert answer.status == 200

    before = await counts()
    await ask([7] * 20)
    short = await counts()
    assert {stage: short[stage] - before[stage] for stage in short} == {
        "request_process": 1,
        "prefill_forward": 1,
        "chunked_prefill": 0,
    }
    await ask([7] * (2 * SchedulerConfig().max_batch_tokens + 1))
    long = await counts()
    assert {stage: long[stage] - short[stage] for stage in long} == {
        "request_process": 1,
        "prefill_forward": 1,
        "chunked_prefill": 2,
    }


async def test_sigterm_lets_streams_finish_and_refuses_new_ones(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(model=str(SHIPPED / "slipstream-chat"), drain_s=60)
    await healthy(process)
    answer = await stream_of(session, process.url, "req_last", max_tokens=1500)
    await answer.content.readline()
    process.child.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        while True:
            async with session.get(f"{process.url}/health") as health:
                if health.status == 503:
                    break
    async with await stream_of(session, process.url, "req_late") as late:
        assert late.status == 503
    chunks = await events(answer)
    assert chunks[-1]["usage"]["completion_tokens"] == 1500
    assert "Traceback" not in process.end()
    assert process.child.returncode == 0


async def test_a_drain_that_takes_too_long_aborts(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(model=str(SHIPPED / "slipstream-chat"), drain_s=0)
    await healthy(process)
    answer = await stream_of(session, process.url, "req_cut")
    await answer.content.readline()
    process.child.send_signal(signal.SIGTERM)
    assert (await events(answer))[-2]["choices"][0]["finish_reason"] == "abort"
    process.end()


async def test_kv_events_are_published_where_server_info_says(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(
        model=str(SHIPPED / "slipstream-chat"),
        kv_events={"endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*", "topic": "kv"},
    )
    await healthy(process)
    await (await stream_of(session, process.url, "req_events", max_tokens=30)).read()
    async with session.get(f"{process.url}/server_info") as answer:
        place = (await answer.json())["kv_events"]
    assert (place["publisher"], place["topic"], place["block_size"]) == ("zmq", "kv", 16)
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as replay:
        replay.connect(place["replay_endpoint"])
        await replay.send_multipart((b"", bytes(8)))
        async with asyncio.timeout(30):
            _, number, payload = await replay.recv_multipart()
    assert number == bytes(8)
    assert msgspec.msgpack.decode(payload)[1][0]["type"] == "BlockStored"
    process.child.send_signal(signal.SIGTERM)
    assert "Traceback" not in process.end()
    assert process.child.returncode == 0


def test_a_broken_model_ends_the_process_with_a_sentence(start: Callable[..., Process], tmp_path: Path) -> None:
    process = start(model=str(tmp_path))
    log = process.end()
    assert process.child.returncode != 0
    assert "config.json: cannot be read" in log


def test_a_port_in_use_is_one_clear_error(start: Callable[..., Process]) -> None:
    first = start(model=str(SHIPPED / "slipstream-chat"))
    second = start(model=str(SHIPPED / "slipstream-chat"), port=int(first.url.rpartition(":")[2]))
    assert "engine.port: cannot listen on 127.0.0.1" in second.end()
