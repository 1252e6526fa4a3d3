"""`slipstream lsp`, driven by a real LSP client over stdio, against a real gateway on a fake engine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from engines.tokenizer.tokenizer import Tokenizer
from tests.deployment import ROOT, Deployment, free_port
from tests.fakes.chunks import answer_text
from tests.fakes.process import FakeEngineProcess
from tests.language_client import Editor, editor

QUICK = {"debounce_ms": 0}
NEVER = {"debounce_ms": 10_000}
TEXT = "def add(a, b):\n    \n\n\nprint(add(1, 2))\n"
HERE = (1, 4)
ANSWER = answer_text(16)


@contextlib.asynccontextmanager
async def on(coding: Deployment, options: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Editor]:
    environment = {"SLIPSTREAM_API_KEY": coding.key}
    async with editor("--url", coding.url, options=options or QUICK, environment=environment, **more) as opened:
        yield opened


async def prompt_of(engine: FakeEngineProcess, number: int = -1) -> str:
    """What the engine was asked, as text."""
    body = msgspec.json.decode((await engine.recorded())[number]["body"])
    tokenizer = Tokenizer(ROOT / "models" / "slipstream-code")
    return tokenizer.decode(body["input_ids"] if "input_ids" in body else body["prompt"])


async def test_a_completion_is_the_gateways_answer_between_both_sides(
    coding: Deployment, engine: FakeEngineProcess
) -> None:
    async with on(coding) as opened:
        assert opened.capabilities.inline_completion_provider
        assert opened.capabilities.position_encoding == "utf-16"
        sync = opened.capabilities.text_document_sync
        assert isinstance(sync, types.TextDocumentSyncOptions)
        assert sync.open_close
        assert sync.change == types.TextDocumentSyncKind.Incremental
        opened.open(TEXT)
        [item] = await opened.complete(*HERE)
    assert item.insert_text == ANSWER
    assert item.range == types.Range(types.Position(*HERE), types.Position(*HERE))
    print(await prompt_of(engine))
    [record] = await engine.recorded()
    print(record)


async def test_x() -> None:
    pass
