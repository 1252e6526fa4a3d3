"""The endpoint and the pipeline serve a wire format that they know nothing of."""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
from collections.abc import AsyncIterator, Sequence

import aiohttp
import msgspec
import pytest

from contracts.desired_state import Model
from contracts.errors import EngineLoop, JournalUnavailable, Overloaded, SlipstreamError
from contracts.usage import Finish, Outcome
from engines.drivers.base import EngineRequest
from engines.drivers.error_bodies import engine_error
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.limits.levels import Level
from gateway.limits.plan import NO_LIMIT, Plan, PlannedRule
from gateway.limits.rate_state import RateState
from gateway.serving.access_log import AccessLog
from gateway.serving.endpoint import IsTheirs
from gateway.serving.model_catalog import MayUse
from gateway.serving.request import Arrival, Salts
from gateway.serving.request_spans import RequestSpans
from gateway.wire.errors import body_of
from gateway.wire.prepared import Target
from telemetry.json_lines import JsonLines
from tests.gateway.served import served
from tests.gateway.serving.client import Client
from tests.gateway.serving.doors import endpoint_of
from tests.gateway.serving.harness import GUARD_S, KEY, Harness, harness, target
from tests.gateway.serving.line_format import BUSY, LineFormat
from tests.waiting import eventually

LINES = LineFormat()
RULE = PlannedRule(Level.KEY, "k", None, "rate", "key", (60, *[NO_LIMIT] * 6))
STREAM, WHOLE = b'{"text":"hi","lines":true}', b'{"text":"hi"}'


class Parts:
    """As much of `InferenceServices` as an endpoint needs: one key, one model."""

    def __init__(self, platform: Harness) -> None:
        self.keyring = self.catalog = self
        self.models: tuple[Model, ...] = ()
        self.salts = Salts(b"secret")
        self.metrics = platform.metrics
        self.pipeline, self.idle_timeouts = platform.pipeline, platform.idle
        self.spans: RequestSpans | None = None
        self.access_log: AccessLog | None = None
        self.refusals: list[tuple[str, str, int]] = []

    def cached(self, secret: str) -> KeyRecord:
        assert secret == "secret"
        return KEY

    def find(self, name: str, may_use: MayUse, adapters: object = (), *_: object) -> Target:
        return target("sglang")

    def refused(self, arrival: Arrival, error: SlipstreamError, status: int) -> None:
        self.refusals.append((arrival.endpoint, error.code, status))


@contextlib.asynccontextmanager
async def endpoint(
    platform: Harness, others: Sequence[tuple[IsTheirs, LineFormat]] = ()
) -> AsyncIterator[tuple[Parts, aiohttp.ClientSession, str]]:
    """A real server with this one endpoint, a client of it, and its URL. others: as of `InferenceEndpoint`."""
    parts = Parts(platform)
    app = endpoint_of(parts, LINES, Scope.COMPLETIONS, others)
    async with served(app) as server, aiohttp.ClientSession(headers={"x-line-key": "secret"}) as session:
        yield parts, session, f"http://127.0.0.1:{server.port}/complete"


async def test_a_stream_has_the_formats_own_frames_and_headers() -> None:
    state = RateState(Plan("o", "", (RULE,)), (59 * 60_000, *[0] * 6), 0)
    async with harness(state=state) as platform, endpoint(platform) as (_, session, url):
        async with session.post(url, data=STREAM) as response:
            lines = (await response.read()).splitlines()
        assert response.headers["content-type"] == "application/x-ndjson"
        assert "x-request-id" not in response.headers
        assert response.headers["line-left"] == "59"
        assert [msgspec.json.decode(line) for line in lines] == [{"text": f" t{n}"} for n in range(4)] + [{"end": 4}]
        (record,) = platform.journal.records
        assert (record.opened.endpoint, record.opened.request_id) == ("line", response.headers["line-id"])
        assert record.usage.completion_tokens == 4
        platform.require_balanced()


async def test_refusals_before_and_within_the_pipeline_have_its_status_and_body() -> None:
    async with harness() as platform, endpoint(platform) as (parts, session, url):
        for asked, code in ((b'{"text":"hi","temperature":1}', "unsupported_parameter"), (b"{", "invalid_json")):
            async with session.post(url, data=asked) as response:
                assert (response.status, (await response.json())["wrong"]) == (400, code)
        platform.faults.raises["opened"] = JournalUnavailable("disk full", retry_after_s=2)
        async with session.post(url, data=STREAM) as response:
            told = {"wrong": "journal_unavailable", "id": response.headers["line-id"]}
            assert (response.status, await response.json()) == (503, told)
            assert response.headers["retry-after"] == "2"
        assert parts.refusals == [("line", "unsupported_parameter", 400), ("line", "invalid_json", 400)]
        async with session.post(url, data=STREAM, headers={"x-line-key": ""}) as response:
            assert (response.status, (await response.json())["wrong"]) == (401, "missing_api_key")
        platform.require_balanced()


async def test_a_request_of_this_deployment_to_itself_as_an_engine_is_refused() -> None:
    async with harness() as platform, endpoint(platform) as (parts, _, url):
        for sender, status in ((parts.salts.deployment, 508), (Salts(b"another's").deployment, 200)):
            connections = EngineConnections(OneKey(""), sender=sender)
            path = EngineRequest("POST", "/complete", WHOLE)
            opening = connections.opening(url.removesuffix(path.path), path, headers=b"x-line-key: secret\r\n")
            try:
                answered = await opening.response(GUARD_S)
                assert answered.status == status
            finally:
                opening.close()
                await connections.close()
        assert parts.refusals == [("line", "engine_loop", 508)]
        await eventually(lambda: len(platform.journal.records) == 1)
    told = engine_error(508, body_of(EngineLoop("a pool has a replica at 'here:1'")))
    assert "its engine is this deployment's own gateway" in told.message
    assert "'here:1'" in (told.detail or "")


async def test_the_access_log_has_a_line_for_each_request_that_nobody_can_forge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "gateway.serving.access_log")
    async with harness() as platform, endpoint(platform) as (parts, session, url):
        parts.access_log = AccessLog()
        given = {"x-client-request-id": 'mine status=200 "x', "user-agent": "line/1"}
        for body, headers in ((STREAM, given), (b"{", {}), (STREAM, {"x-line-key": ""})):
            async with session.post(url, data=body, headers=headers) as response:
                await response.read()
        ours = [record for record in caplog.records if record.name == "gateway.serving.access_log"]
        served, invalid, stranger = (json.loads(JsonLines().format(record)) for record in ours)
        (ledger,) = platform.journal.records
        assert served["request_id"] == ledger.opened.request_id
        assert served["client_request_id"] == given["x-client-request-id"]
        assert (served["path"], served["status"], served["model"]) == ("/complete", 200, "m")
        assert served["completion_tokens"] == ledger.usage.completion_tokens == 4
        assert served["organization_id"] == KEY.caller.organization_id
        assert served["total_ms"] >= served["ttft_ms"] > 0
        assert (invalid["status"], invalid["error_code"]) == (400, "invalid_json")
        assert f"organization_id={KEY.caller.organization_id}" in ours[1].getMessage()
        assert (stranger["status"], stranger["error_code"]) == (401, "missing_api_key")
        assert "organization_id" not in stranger
        first = ours[0].getMessage()
        assert r'client_request_id="mine status=200 \"x"' in first
        assert shlex.split(first)[0] == f"request_id={ledger.opened.request_id}"


async def test_a_strangers_path_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: with a model in its path, a request without a key wrote 60 kB for each millisecond of the loop."""
    caplog.set_level(logging.INFO, "gateway.serving.access_log")
    async with harness() as platform, endpoint(platform) as (parts, session, url):
        parts.access_log = AccessLog()
        async with session.post(f"{url}/{'é' * 5_000}", data=STREAM, headers={"x-line-key": ""}) as response:
            assert response.status == 401
        (line,) = [record.getMessage() for record in caplog.records if record.name == "gateway.serving.access_log"]
        assert len(line) < 2_000


@pytest.mark.parametrize(
    ("driver", "streamed", "exact"), [("sglang", True, True), ("sglang", False, True), ("openai", True, False)]
)
async def test_an_engine_is_stopped_once_the_client_has_all_that_it_gets(
    driver: str, streamed: bool, exact: bool
) -> None:
    """What was generated until then is counted and paid for, and the answer ends as any other."""
    async with harness(engines=1, driver=driver) as platform:
        platform.script(tokens=10_000, inter_token_s=0.005, prompt_tokens=7)
        client = Client()
        asked = {"text": "hi", "tokens": 10_000, "lines": streamed, "most": 2}
        await platform.serve(client, msgspec.json.encode(asked), LINES)
        (record,) = platform.journal.records
        used = record.usage.completion_tokens
        assert 2 <= used < 1_000
        if streamed:
            texts = [msgspec.json.decode(line) for line in client.answer.body.splitlines()]
            assert texts == [{"text": " t0"}, {"text": " t1"}, {"end": used}]
        else:
            assert msgspec.json.decode(client.answer.body) == {"whole": " t0 t1"}
        assert (record.finish, record.billed, record.status) == (Finish.COMPLETE, True, 200)
        assert record.outcome is (Outcome.EXACT if exact else Outcome.LOWER_BOUND)
        await platform.engines_idle()
        (made,) = platform.engines[0].records.values()
        assert (made.aborted, made.disconnected) == (exact, not exact)
        platform.require_balanced()


async def test_a_stream_that_breaks_off_ends_with_its_own_error() -> None:
    async with harness() as platform:
        platform.script(die_after_tokens=2)
        client = Client()
        await platform.serve(client, STREAM, LINES)
        lines = client.answer.body.splitlines()
        assert [msgspec.json.decode(line) for line in lines] == [
            {"text": " t0"},
            {"text": " t1"},
            {"wrong": "engine_failed"},
        ]
        platform.require_balanced()


async def test_a_status_of_its_own_is_what_client_journal_and_traces_see() -> None:
    async with harness() as platform:
        platform.faults.raises["acquire"] = Overloaded("shed", retry_after_s=1)
        client = Client()
        await platform.serve(client, STREAM, LINES)
        assert client.answer.status == BUSY
        assert platform.journal.records[0].status == BUSY
        assert platform.traces.seen == [(BUSY, "overloaded")]


class SpacedFormat(LineFormat):
    """Another API on the same path: its bodies begin with a space, and its refusals are told apart."""

    name = "spaced"

    def error_body(self, error: SlipstreamError, request_id: str) -> bytes:
        return msgspec.json.encode({"spaced": error.code})


async def test_a_path_that_two_apis_share_is_served_by_the_body() -> None:
    others = [((lambda body: body.startswith(b" ")), SpacedFormat())]
    async with harness() as platform, endpoint(platform, others) as (parts, session, url):
        for asked in (WHOLE, b" " + WHOLE):
            async with session.post(url, data=asked) as response:
                assert await response.json() == {"whole": " t0 t1 t2 t3"}
        assert [record.opened.endpoint for record in platform.journal.records] == ["line", "spaced"]
        async with session.post(url, data=b' {"text":') as response:
            assert (response.status, await response.json()) == (400, {"spaced": "invalid_json"})
        platform.faults.raises["opened"] = JournalUnavailable("disk full", retry_after_s=2)
        async with session.post(url, data=b" " + WHOLE) as response:
            assert (response.status, await response.json()) == (503, {"spaced": "journal_unavailable"})
        assert parts.refusals == [("spaced", "invalid_json", 400)]
        platform.require_balanced()
