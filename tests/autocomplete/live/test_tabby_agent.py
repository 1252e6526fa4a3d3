"""Tabby's own agent (npm `tabby-agent`), driven as editors drive it, against a gateway.

It asks `/v1/health` and `/v1beta/server_setting` first and sends nothing to a server that it takes for disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from lsprotocol import types

from tests.autocomplete.asked import engine_record, sides
from tests.autocomplete.live.node import PACKAGES, require_node
from tests.gateway.slow_platform import SlowPlatform
from tests.language_client import editor_on

GUARD_S = 60.0
TEXTS = ("rn a", " + b")
FILE = "def add(a, b):\n    retu\n\nprint(add(1, 2))\n"
TYPED = FILE.index("retu") + len("retu")
AGENT = PACKAGES / "tabby-agent" / "dist" / "cli.js"
Call = Callable[..., Awaitable[Any]]


def environment_of(platform: SlowPlatform, home: Path) -> dict[str, str]:
    """Where the agent finds its settings."""
    settings = home / ".tabby-client" / "agent" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f'[server]\nendpoint = "{platform.url}"\ntoken = "{platform.key}"\n[anonymousUsageTracking]\ndisable = true\n'
    )
    return {**os.environ, "HOME": str(home)}


@contextlib.asynccontextmanager
async def writing(platform: SlowPlatform) -> AsyncIterator[None]:
    """The model writes `TEXTS`."""
    await platform.engine.control(texts=TEXTS, tokens=len(TEXTS))
    try:
        yield
    finally:
        await platform.engine.control(texts=(), tokens=16)


async def test_an_editor_is_offered_what_the_model_wrote(platform: SlowPlatform, tmp_path: Path) -> None:
    command = (require_node(), str(AGENT), "--lsp", "--stdio")
    environment = environment_of(platform, tmp_path)
    async with writing(platform), editor_on(*command, folder=tmp_path, environment=environment) as editor:
        editor.open(FILE, "file:///project/calc.py")
        offered = await editor.client.text_document_completion_async(
            types.CompletionParams(types.TextDocumentIdentifier(editor.uri), types.Position(1, 8))
        )
    assert isinstance(offered, types.CompletionList)
    (item,) = offered.items
    assert item.text_edit is not None
    assert item.text_edit.new_text.endswith("rn a + b")
    *_, last = await platform.engine.recorded()
    prefix, suffix = sides((await engine_record(platform, last["rid"]))["body"]["prompt"])
    assert prefix.endswith("def add(a, b):\n    retu")
    assert suffix == "\n\nprint(add(1, 2))\n"


@contextlib.asynccontextmanager
async def agent_on(platform: SlowPlatform, home: Path) -> AsyncIterator[Call]:
    """The agent as Tabby's extensions drive it: a function's name and arguments a line, and its result. Its language
    server reports no events; this does."""
    process = await asyncio.create_subprocess_exec(
        require_node(), AGENT, "--stdio", cwd=home, env=environment_of(platform, home),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout, number = process.stdin, process.stdout, 0

    async def call(function: str, *arguments: Any) -> Any:
        nonlocal number
        number += 1
        stdin.write(msgspec.json.encode([number, {"func": function, "args": arguments}]) + b"\n")
        async with asyncio.timeout(GUARD_S):
            while line := await stdout.readline():
                told, result = msgspec.json.decode(line)
                if told == number:  # all others are news of the agent
                    return result
        raise AssertionError("the agent has ended")

    try:
        yield call
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the wheel's node is a program that starts node
        await process.wait()


async def test_what_the_editor_showed_and_took_is_in_the_gateways_books(platform: SlowPlatform, tmp_path: Path) -> None:
    asked = {"filepath": "/project/calc.py", "language": "python", "text": FILE, "position": TYPED, "manually": True}
    async with writing(platform), agent_on(platform, tmp_path) as call:
        assert await call("initialize", {})
        answer = await call("provideCompletions", asked)
        told = {"completion_id": answer["id"], "choice_index": 0, "view_id": "v1"}
        for more in ({"type": "view"}, {"type": "select", "elapsed": 812}):
            assert await call("postEvent", {**told, **more}) is True
    assert answer["choices"][0]["text"].endswith("rn a + b")
    rows = await platform.events("req_" + answer["id"].removeprefix("cmpl-"), 2)
    assert {(row["type"], row["view_id"], row["elapsed_ms"]) for row in rows} == {
        ("view", "v1", None),
        ("select", "v1", 812),
    }
