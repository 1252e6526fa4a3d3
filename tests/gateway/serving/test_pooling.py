"""A request without output: its response in both encodings, its books in every case, and its place in an engine."""

from __future__ import annotations

import base64
from array import array
from typing import Any

import msgspec
import pytest

from contracts.errors import EngineFailed, InvalidField
from contracts.pooling import EmbeddingWork
from contracts.usage import Finish, Outcome
from gateway.wire.config import RequestConfig
from gateway.wire.pooling.answer import EmbeddingAnswer
from gateway.wire.pooling.format import EmbeddingFormat, RerankFormat, ScoreFormat
from gateway.wire.usage_tracker import UsageTracker
from tests.fakes.pooling import vector
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import Harness, harness

EMBEDDING, RERANK, SCORE = EmbeddingFormat(RequestConfig()), RerankFormat(RequestConfig()), ScoreFormat(RequestConfig())
DOCUMENTS = ["a heron", "the grey heron of the pond", "a train"]


async def served(
    platform: Harness, wire_format: Any = EMBEDDING, client: Client | None = None, **fields: Any
) -> Client:
    """One request, served to its end, with its books looked at."""
    platform.pipeline = platform.serving.pooling
    client = client or Client()
    await platform.serve(client, msgspec.json.encode({"model": "m", **fields}), wire_format)
    platform.require_balanced()
    return client


def books(platform: Harness) -> list[tuple[Finish, Outcome, bool, int]]:
    return [(one.finish, one.outcome, one.billed, one.usage.prompt_tokens) for one in platform.journal.records]


@pytest.mark.parametrize("driver", ["sglang", "vllm", "openai", "embedded"])
async def test_every_dialect_embeds_texts_and_token_ids(driver: str) -> None:
    async with harness(driver=driver) as platform:
        answer = (await served(platform, input=["one", "three"])).answer
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert [(one["index"], one["embedding"]) for one in answer.json["data"]] == [
            (0, vector("one")),
            (1, vector("three")),
        ]
        assert answer.json["model"] == "m"
        assert answer.json["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
        assert answer.headers["x-request-id"].startswith("req_")
        if driver not in ("sglang",):
            answer = (await served(platform, input=[[1, 2], [3]])).answer
            assert [one["embedding"] for one in answer.json["data"]] == [vector([1, 2]), vector([3])]
            answer = (await served(platform, input=[4, 5])).answer
            assert [one["embedding"] for one in answer.json["data"]] == [vector([4, 5])]
        assert set(books(platform)) == {(Finish.COMPLETE, Outcome.EXACT, True, 7)}


@pytest.mark.parametrize(("asked", "written"), [("base64", "float"), ("float", "base64"), ("base64", "base64")])
async def test_a_vector_has_the_requested_encoding_whatever_the_engine_wrote(asked: str, written: str) -> None:
    async with harness() as platform:
        platform.script(encoding=written)
        answer = (await served(platform, input="heron", encoding_format=asked)).answer
        (one,) = answer.json["data"]
        if asked == "base64":
            assert array("f", base64.b64decode(one["embedding"])).tolist() == vector("heron")
        else:
            assert one["embedding"] == vector("heron")


async def test_dimensions_are_kept_or_refused_and_never_ignored() -> None:
    async with harness() as platform:
        answer = (await served(platform, input="heron", dimensions=4)).answer
        assert answer.json["data"][0]["embedding"] == vector("heron")[:4]
        answer = (await served(platform, input="heron", dimensions=4_000)).answer
        assert (answer.status, answer.json["error"]["param"]) == (400, "dimensions")
        assert "have 8 numbers, not" in answer.json["error"]["message"]
        assert [one[2] for one in books(platform)] == [True, False]


async def test_an_engine_that_counts_nothing_is_billed_by_our_count() -> None:
    async with harness() as platform:
        platform.script(usage=False)
        answer = (await served(platform, input="a text of thirty bytes or so ..")).answer
        tokens = answer.json["usage"]["prompt_tokens"]
        assert tokens == platform.journal.records[0].opened.prompt_tokens_estimate
        assert books(platform) == [(Finish.COMPLETE, Outcome.LOWER_BOUND, True, tokens)]


@pytest.mark.parametrize("dimensions", [None, 1])
@pytest.mark.parametrize("vector_json", ['["a"]', '{"a": 1}', "[[1]]", "7", "null"])
def test_a_vector_that_holds_no_numbers_is_a_failure(vector_json: str, dimensions: int | None) -> None:
    answer = EmbeddingAnswer(EmbeddingWork(("heron",), dimensions=dimensions), "m", UsageTracker(1), 3)
    answer.feed(b'{"data": [{"index": 0, "embedding": %b}]}' % vector_json.encode())
    with pytest.raises(EngineFailed, match="no readable vectors or scores"):
        answer.finish()


async def test_an_answer_with_too_few_vectors_is_a_failure_that_another_engine_may_not_have() -> None:
    async with harness() as platform:
        platform.engines[0].control(msgspec.json.encode({"dropped_vectors": 1}))
        answer = (await served(platform, input=["one", "two"])).answer
        assert answer.status == 200
        assert [one[:3] for one in books(platform)] == [
            (Finish.ENGINE_ERROR, Outcome.LOWER_BOUND, False),
            (Finish.COMPLETE, Outcome.EXACT, True),
        ]
        assert [end.engine_fault for end in platform.router.ends] == [True, False]


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ({"die_after_tokens": 0}, 502, "engine_failed"),
        ({"status": 400, "message": "This input is not for me."}, 400, "engine_refused"),
        ({"status": 503}, 503, "overloaded"),
    ],
)
async def test_a_failure_is_not_billed(script: dict[str, Any], status: int, code: str) -> None:
    async with harness() as platform:
        platform.script(**script)
        answer = (await served(platform, input="heron")).answer
        assert (answer.status, answer.json["error"]["code"]) == (status, code)
        assert not any(record.billed or record.usage.total_tokens for record in platform.journal.records)


async def test_a_client_that_leaves_stops_the_engine_and_is_not_billed() -> None:
    async with harness(engines=1) as platform:
        platform.script(hang=True)
        client, (engine,) = Client(), platform.engines
        engine.wait({"requests": "1"}, client.leave)
        await served(platform, client=client, input="heron")
        assert books(platform) == [(Finish.CLIENT_GONE, Outcome.LOWER_BOUND, False, 0)]
        cost, refunded = next(iter(platform.limiter.used.values()))
        assert (cost.micro, refunded) == (0, False), "the rate limits count what the engine was given"
        assert cost.input_tokens > 0
        await platform.engines_idle()
        assert [record.disconnected for record in engine.records.values()] == [True]


async def test_a_reservation_bounds_the_prompt_and_no_output() -> None:
    async with harness() as platform:
        await served(platform, input=["one", "three"])
        (ask,) = platform.router.asks
        assert ask.max_output_tokens == 0
        assert ask.prompt_tokens == platform.journal.records[0].opened.prompt_tokens_estimate


@pytest.mark.parametrize(("driver", "script"), [("sglang", {"flat": True}), ("vllm", {}), ("openai", {})])
async def test_documents_are_ranked_whatever_the_engines_form(driver: str, script: dict[str, Any]) -> None:
    async with harness(driver=driver) as platform:
        platform.script(**script)
        answer = (await served(platform, RERANK, query="the heron", documents=DOCUMENTS, top_n=2)).answer
        assert [(one["index"], one["relevance_score"]) for one in answer.json["results"]] == [(1, 2.0), (0, 1.0)]
        assert answer.json["results"][0]["document"] == {"text": DOCUMENTS[1]}
        assert answer.json["id"].startswith("rerank-")
        tokens = answer.json["usage"]["total_tokens"]
        assert books(platform) == [(Finish.COMPLETE, Outcome.EXACT, True, tokens)]
        objects = [{"text": text} for text in DOCUMENTS]
        answer = (await served(platform, RERANK, query="the heron", documents=objects, return_documents=False)).answer
        assert [one["index"] for one in answer.json["results"]] == [1, 0, 2]
        assert not any("document" in one for one in answer.json["results"])


async def test_pairs_are_scored_in_their_order() -> None:
    async with harness(driver="vllm") as platform:
        answer = (await served(platform, SCORE, text_1="the heron", text_2=DOCUMENTS)).answer
        assert [one["score"] for one in answer.json["data"]] == [1.0, 2.0, 0.0]
        answer = (await served(platform, SCORE, text_1=["a train", "no"], text_2=[*DOCUMENTS[2:], "no"])).answer
        assert [one["score"] for one in answer.json["data"]] == [2.0, 1.0]
    async with harness(driver="sglang") as platform:
        answer = (await served(platform, SCORE, text_1=["a", "b"], text_2=["c", "d"])).answer
        assert (answer.status, answer.json["error"]["param"]) == (400, "text_1")


@pytest.mark.parametrize(
    ("wire_format", "fields", "param"),
    [
        (EMBEDDING, {"input": []}, "input"),
        (EMBEDDING, {"input": ["a", ""]}, "input[1]"),
        (EMBEDDING, {"input": ["a", [1]]}, "input[1]"),
        (EMBEDDING, {"input": [[1], 2]}, "input[1]"),
        (EMBEDDING, {"input": [1, "a"]}, "input[0]"),
        (EMBEDDING, {"input": ["a"] * 2_049}, "input"),
        (EMBEDDING, {"input": [[]]}, "input[0]"),
        (RERANK, {"query": "q", "documents": ["a", " "]}, "documents[1]"),
        (SCORE, {"text_1": ["a", "b"], "text_2": ["a"]}, "text_1"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(wire_format: Any, fields: dict[str, Any], param: str) -> None:
    async with harness(driver="vllm", engines=0) as platform:
        with pytest.raises(InvalidField) as caught:
            await platform.request(wire_format, msgspec.json.encode({"model": "m", **fields}))
        assert caught.value.param == param
