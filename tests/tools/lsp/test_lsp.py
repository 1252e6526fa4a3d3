"""`slipstream tools lsp`, driven by a real LSP client over stdio, against a real gateway on a fake engine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from contracts.errors import ConfigError
from engines.tokenizer.tokenizer import Tokenizer
from slipstream.commands.lsp import lsp
from tests.deployment import ROOT, Deployment, free_port
from tests.fakes.chunks import answer_text
from tests.fakes.process import FakeEngineProcess
from tests.language_client import Editor, editor
from tests.tools.lsp.scripted_gateway import scripted_gateway
from tests.waiting import eventually

TEXT = "def add(a, b):\n    \n\n\nprint(add(1, 2))\n"
HERE = (1, 4)
ANSWER = answer_text(16)
NEVER_MS = 10_000
REQUEST_CANCELLED = -32800
INVALID_PARAMS = -32602


@contextlib.asynccontextmanager
async def on(
    coding: Deployment, *, key: str | None = None, encoding: str = "utf-16", **more: Any
) -> AsyncIterator[Editor]:
    """An editor on the deployment. more: initializationOptions."""
    environment = {"SLIPSTREAM_API_KEY": key or coding.key}
    async with editor(
        "--url", coding.url, options=more or None, environment=environment, encodings=[encoding]
    ) as opened:
        yield opened


def completion_id(item: types.InlineCompletionItem) -> object:
    """What acceptance is told with."""
    assert item.command is not None
    assert item.command.arguments is not None
    return item.command.arguments[0]


async def asked(engine: FakeEngineProcess) -> list[str]:
    """What the engine was asked so far, as text."""
    tokenizer = Tokenizer.load(ROOT / "models" / "slipstream-code")
    records = await engine.recorded()
    return [b"".join(map(tokenizer.token_bytes, record["body"]["prompt"])).decode() for record in records]


async def test_a_completion_is_the_gateways_answer_to_both_sides(coding: Deployment, engine: FakeEngineProcess) -> None:
    async with on(coding) as opened:
        assert opened.capabilities.inline_completion_provider
        sync = opened.capabilities.text_document_sync
        assert isinstance(sync, types.TextDocumentSyncOptions)
        assert (sync.open_close, sync.change) == (True, types.TextDocumentSyncKind.Incremental)
        opened.open(TEXT)
        [item] = await opened.complete(*HERE)
    assert item.insert_text == ANSWER
    assert item.range == types.Range(types.Position(*HERE), types.Position(*HERE))
    [prompt] = await asked(engine)
    assert "def add(a, b):\n" in prompt
    assert "print(add(1, 2))" in prompt
    [record] = await engine.recorded()
    assert record["body"]["model"] == "code"


@pytest.mark.parametrize(("encoding", "clef_units"), [("utf-8", 4), ("utf-16", 2), ("utf-32", 1)])
async def test_edits_and_places_are_counted_in_the_units_that_were_agreed(
    coding: Deployment, engine: FakeEngineProcess, encoding: str, clef_units: int
) -> None:
    async with on(coding, encoding=encoding) as opened:
        assert opened.capabilities.position_encoding == encoding
        opened.open("\f\r\nx = '𝄞'\r\n")
        opened.type(1, 5 + clef_units, " + ''", replaced=0)  # x = '𝄞 + '''
        opened.type(1, 5 + clef_units, "LEFTRIGHT", replaced=5)
        await opened.complete(1, 5 + clef_units + len("LEFT"))
    [prompt] = await asked(engine)
    assert "\f\n" in prompt
    assert "x = '𝄞LEFT" in prompt
    assert "RIGHT'\n" in prompt
    assert "LEFTRIGHT" not in prompt
    assert "\r" not in prompt


async def test_what_is_typed_along_an_answer_is_served_from_memory(
    coding: Deployment, engine: FakeEngineProcess
) -> None:
    async with on(coding) as opened:
        opened.open(TEXT)
        [first] = await opened.complete(*HERE)
        opened.type(*HERE, text=ANSWER[:6])
        [second] = await opened.complete(HERE[0], HERE[1] + 6, invoked=False)
        assert second.insert_text == ANSWER[6:]
        assert completion_id(second) == completion_id(first)
        assert len(await engine.recorded()) == 1
        opened.type(HERE[0], HERE[1] + 6, text="?")
        await opened.complete(HERE[0], HERE[1] + 7)
        assert len(await engine.recorded()) == 2


async def test_a_keystroke_within_the_debounce_replaces_the_request_before_it_is_sent(
    coding: Deployment, engine: FakeEngineProcess
) -> None:
    async with on(coding, debounce_ms=NEVER_MS) as opened:
        opened.open(TEXT)
        waiting = opened.ask(*HERE, invoked=False)
        opened.type(*HERE, text="r")
        assert not (await waiting).items
        again = opened.ask(HERE[0], HERE[1] + 1, invoked=False)
        [item] = await opened.complete(HERE[0], HERE[1] + 1, invoked=True)
        assert item.insert_text == ANSWER
        assert not (await again).items
    assert len(await engine.recorded()) == 1


async def test_a_keystroke_or_a_cancel_ends_the_request_that_runs_and_the_engines_work(
    coding: Deployment, engine: FakeEngineProcess
) -> None:
    await engine.control(hang_after_tokens=2)
    async with on(coding) as opened:
        opened.open(TEXT)
        running = opened.ask(*HERE)
        await engine.wait(tokens=2)
        opened.type(*HERE, text="r")
        assert not (await running).items
        await engine.wait(ended=1)
        [record] = await engine.recorded()
        assert record["aborted"] or record["disconnected"]
        await engine.control(reset=True)
        await engine.control(hang_after_tokens=2)
        running = opened.ask(*HERE, request_id="mine")
        await engine.wait(tokens=2)
        opened.cancel("mine")
        with pytest.raises(JsonRpcException) as caught:
            await running
        assert caught.value.code == REQUEST_CANCELLED
        await engine.wait(ended=1)


async def test_the_selected_item_of_the_editors_list_is_completed(
    coding: Deployment, engine: FakeEngineProcess
) -> None:
    async with on(coding) as opened:
        opened.open("import os\nos.pa\n")
        place = types.Range(types.Position(1, 3), types.Position(1, 5))
        [item] = await opened.complete(1, 5, selected=types.SelectedCompletionInfo(place, "path"))
    assert item.insert_text == "path" + ANSWER
    assert item.range == place
    [prompt] = await asked(engine)
    assert "os.path" in prompt
    assert "os.pa\n" not in prompt


async def test_of_a_huge_file_a_bounded_part_is_sent(coding: Deployment, engine: FakeEngineProcess) -> None:
    lines = [f"line_{number} = {number}\n" for number in range(20_000)]
    async with on(coding, prefix_chars=300, suffix_chars=100) as opened:
        opened.open("".join(lines))
        [item] = await opened.complete(10_000, 0)
    assert item.insert_text == ANSWER
    [prompt] = await asked(engine)
    assert lines[9_999] in prompt
    assert lines[10_000] in prompt
    assert len(prompt) < 500


async def test_a_document_that_is_closed_or_unknown_has_no_completions(
    coding: Deployment, engine: FakeEngineProcess
) -> None:
    async with on(coding) as opened:
        opened.uri = "file:///project/never-opened.py"
        assert await opened.complete(0, 0) == []
        opened.open(TEXT)
        document = types.TextDocumentIdentifier(opened.uri)
        opened.client.text_document_did_close(types.DidCloseTextDocumentParams(document))
        assert await opened.complete(*HERE) == []
    assert await engine.recorded() == []


async def test_a_key_of_completions_alone_in_a_file_that_the_command_line_names_is_enough(
    coding: Deployment, engine: FakeEngineProcess, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(await coding.make_key("--name", "editor") + "\n")
    async with coding.database() as database:
        await database.execute("UPDATE gateway.api_keys SET scopes = '{completions}' WHERE name = 'editor'")
    command = ("--stdio", "--url", coding.url, "--api-key-file", str(file))
    async with editor(*command, environment={"SLIPSTREAM_API_KEY": "sk-slip-wrong"}) as opened:
        opened.open(TEXT)
        [item] = await opened.complete(*HERE)
        assert opened.messages.empty()
    assert item.insert_text == ANSWER


async def test_a_refusal_is_shown_once_in_the_apis_own_words(coding: Deployment, engine: FakeEngineProcess) -> None:
    secret = "sk-slip-" + "0" * 38
    async with on(coding, key=secret) as opened:
        opened.open(TEXT)
        assert await opened.complete(*HERE) == []
        assert await opened.complete(*HERE) == []
        said = opened.messages.get_nowait()
        assert opened.messages.empty()
    assert said.startswith("Slipstream: ")
    assert "API key" in said
    assert secret not in said


async def test_past_a_limit_nothing_is_asked_until_it_is_over(coding: Deployment, engine: FakeEngineProcess) -> None:
    key = await coding.make_key("--name", "slow", "--requests-per-minute", "1")
    async with on(coding, key=key, model="code") as opened:
        opened.open(TEXT)
        [_] = await opened.complete(*HERE)
        for _ in range(3):
            opened.type(*HERE, text="x")
            assert await opened.complete(HERE[0], HERE[1] + 1) == []
        said = opened.messages.get_nowait()
        assert opened.messages.empty()
    assert "requests per minute" in said.lower().replace("_", " ")
    assert len(await engine.recorded()) == 1


async def test_a_gateway_that_is_not_there_is_named(tmp_path: Path) -> None:
    port = free_port()
    async with editor(options={"url": f"http://127.0.0.1:{port}/v1/"}) as opened:
        opened.open(TEXT)
        assert await opened.complete(*HERE) == []
        said = opened.messages.get_nowait()
    assert said == f"Slipstream: http://127.0.0.1:{port} cannot be reached: Connection refused"


@pytest.mark.system
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"debonce_ms": 3, "api_key": "sk-slip-1"},
            "debonce_ms: unknown setting (initializationOptions), did you mean debounce_ms?",
        ),
        ({"debounce_ms": -1}, "debounce_ms: Expected `int` >= 0; got -1"),
        ({"url": "gateway:8000"}, "url: 'gateway:8000' is not the address of a gateway"),
        ({"api_key": "sk-slip-1 and more"}, "api_key: not an API key"),
        ([1], "initializationOptions: expected an object of settings, got list"),
    ],
)
async def test_a_setting_that_is_wrong_stops_the_start(options: Any, said: str) -> None:
    with pytest.raises(JsonRpcException) as caught:
        async with editor(options=options):
            pass
    assert caught.value.code == INVALID_PARAMS
    assert said in caught.value.message
    assert "sk-slip-1" not in caught.value.message


async def test_a_refusal_is_shown_again_once_the_gateway_has_answered_in_between() -> None:
    broken = '{"error": {"message": "The engine fell over.", "code": "engine_failed"}}'
    async with scripted_gateway() as gateway, editor(options={"url": gateway.url, "model": "m"}) as opened:
        opened.open(TEXT)
        gateway.will_answer('{"id": "cmpl-1", "choices": [{"text": "return a"}]}')
        assert [item.insert_text for item in await opened.complete(*HERE)] == ["return a"]
        for _ in range(2):
            gateway.will_answer(broken, 502)
            assert await opened.complete(0, 0) == []
            assert [item.insert_text for item in await opened.complete(*HERE)] == ["return a"]  # from memory
        gateway.will_answer('{"id": "cmpl-2", "choices": [{"text": ""}]}')
        assert await opened.complete(0, 3) == []
        gateway.will_answer(broken, 502)
        assert await opened.complete(0, 0) == []
        said = [opened.messages.get_nowait() for _ in range(opened.messages.qsize())]
    assert said == ["Slipstream: The engine fell over."] * 2


async def test_what_the_editor_is_given_is_told_once_as_shown_and_what_it_takes_with_the_time() -> None:
    async with scripted_gateway() as gateway, editor(options={"url": gateway.url, "model": "m"}) as opened:
        opened.open(TEXT)
        gateway.will_answer('{"id": "cmpl-1", "choices": [{"text": ""}]}')
        assert await opened.complete(0, 3) == []
        gateway.will_answer('{"id": "cmpl-2", "choices": [{"text": "return a + b"}]}')
        for _ in range(3):  # the second and the third from memory
            [item] = await opened.complete(*HERE)
        gateway.will_answer('{"id": "cmpl-3", "choices": [{"text": "x"}]}')
        assert len(await opened.complete(2, 0)) == 1
        told = [await gateway.viewed.get() for _ in range(2)]
        gateway.will_answer("{}")
        await opened.accept(item)
    accepted = gateway.asked[-1]
    assert (accepted.method, accepted.path) == ("POST", "/v1/completions/cmpl-2/events")
    elapsed_ms = accepted.body.pop("elapsed_ms")
    assert isinstance(elapsed_ms, int)
    assert elapsed_ms >= 0
    assert accepted.body == {"type": "select", "choice_index": 0, "characters": len("return a + b")}
    assert {view.path for view in told} == {f"/v1/completions/cmpl-{number}/events" for number in (2, 3)}
    assert [view.body for view in told] == [{"type": "view", "choice_index": 0}] * 2
    assert gateway.viewed.empty()


async def test_acceptance_of_what_was_left_to_take_is_in_the_gateways_books(
    coding: Deployment, engine: FakeEngineProcess
) -> None:
    async with on(coding) as opened:
        assert opened.capabilities.execute_command_provider is not None
        assert opened.capabilities.execute_command_provider.commands == ("slipstream.completionAccepted",)
        opened.open(TEXT)
        await opened.complete(*HERE)
        opened.type(*HERE, text=ANSWER[:6])
        [item] = await opened.complete(HERE[0], HERE[1] + 6)
        await opened.accept(item)
        assert opened.messages.empty()
    request_id = str(completion_id(item)).removeprefix("cmpl-")
    async with coding.database() as database:
        query = "SELECT type, characters FROM gateway.completion_events WHERE strpos(request_id, $1) > 0"
        expected = {("view", None), ("select", len(ANSWER) - 6)}

        async def stored() -> bool:  # gateways store them by rounds
            return {tuple(row) for row in await database.fetch(query, request_id)} == expected

        await eventually(stored)
        traced = "SELECT client, language FROM gateway.request_traces WHERE strpos(request_id, $1) > 0"
        told = await eventually(lambda: database.fetchrow(traced, request_id))
    assert tuple(told) == ("slipstream-lsp", "python")


def test_without_the_library_its_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(lsp, [])
    assert isinstance(result.exception, ConfigError)
    assert f"{sys.executable} -m pip install -e '.[lsp]'" in result.exception.message
