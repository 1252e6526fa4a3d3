"""An editor for tests: pygls' own client, over stdio, on the process of a real language server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from tests.deployment import ROOT, plain_environment

GUARD_S = 60.0
"""Against hanging for ever, not a measure."""


class Editor:
    """An editor with one document open at a time. capabilities: what the server answered to `initialize`."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.process: asyncio.subprocess.Process
        self.messages: asyncio.Queue[str] = asyncio.Queue()
        """What the user was shown."""
        self.capabilities: types.ServerCapabilities
        self.uri = ""
        self._version = 0

    def open(self, text: str, uri: str = "file:///project/a.py", language: str = "python") -> None:
        """Show a document."""
        self.uri, self._version = uri, 1
        item = types.TextDocumentItem(uri, language, self._version, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def type(self, line: int, character: int, text: str, replaced: int = 0) -> None:
        """Insert at a place, over so many units of the same line."""
        self._version += 1
        place = types.Range(types.Position(line, character), types.Position(line, character + replaced))
        change = types.TextDocumentContentChangePartial(range=place, text=text)
        document = types.VersionedTextDocumentIdentifier(version=self._version, uri=self.uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def ask(
        self,
        line: int,
        character: int,
        *,
        selected: types.SelectedCompletionInfo | None = None,
        invoked: bool = True,
        request_id: str | None = None,
    ) -> asyncio.Future[types.InlineCompletionList]:
        """Ask for completions there; sent at once."""
        kind = types.InlineCompletionTriggerKind
        params = types.InlineCompletionParams(
            context=types.InlineCompletionContext(kind.Invoked if invoked else kind.Automatic, selected),
            text_document=types.TextDocumentIdentifier(self.uri),
            position=types.Position(line, character),
        )
        answer: asyncio.Future[types.InlineCompletionList] = self.client.protocol.send_request_async(
            types.TEXT_DOCUMENT_INLINE_COMPLETION, params, msg_id=request_id
        )
        return answer

    async def complete(self, line: int, character: int, **more: Any) -> list[types.InlineCompletionItem]:
        """The items there."""
        return list((await self.ask(line, character, **more)).items)

    def cancel(self, request_id: str) -> None:
        """$/cancelRequest."""
        self.client.cancel_request(types.CancelParams(request_id))

    async def accept(self, item: types.InlineCompletionItem) -> None:
        """What an editor does after it inserted an item."""
        assert item.command is not None
        await self.client.workspace_execute_command_async(
            types.ExecuteCommandParams(item.command.command, item.command.arguments)
        )


@contextlib.asynccontextmanager
async def editor(
    *arguments: str,
    options: Any = None,
    environment: Mapping[str, str] | None = None,
    encodings: Sequence[types.PositionEncodingKind | str] | None = None,
) -> AsyncIterator[Editor]:
    """An editor that has started `slipstream tools lsp`, and ends it as editors do. The process must have written
    nothing to stderr, whatever came of it."""
    async with editor_on(
        sys.executable, "-m", "slipstream", "tools", "lsp", *arguments,
        folder=ROOT, environment={**plain_environment(), **(environment or {})}, options=options, encodings=encodings,
    ) as made:  # fmt: skip
        try:
            yield made
            await made.client.shutdown_async(None)
            made.client.exit(None)
            assert await made.process.wait() == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                made.process.kill()
            assert made.process.stderr is not None
            written = await made.process.stderr.read()
            assert written == b"", written.decode()


@contextlib.asynccontextmanager
async def editor_on(
    *command: str,
    folder: Path,
    environment: Mapping[str, str],
    options: Any = None,
    encodings: Sequence[types.PositionEncodingKind | str] | None = None,
) -> AsyncIterator[Editor]:
    """An editor that has started a server by this command in a folder, and kills it at the end."""
    client = LanguageClient("tests", "1")
    made = Editor(client)

    @client.feature(types.WINDOW_SHOW_MESSAGE)  # type: ignore[untyped-decorator]
    def shown(params: types.ShowMessageParams) -> None:
        made.messages.put_nowait(params.message)

    async with asyncio.timeout(GUARD_S):
        await client.start_io(*command, cwd=folder, env=dict(environment), start_new_session=True)
        process = client._server
        assert process is not None
        made.process = process
        try:
            general = types.GeneralClientCapabilities(position_encodings=list(encodings) if encodings else None)
            answer = await client.initialize_async(
                types.InitializeParams(
                    capabilities=types.ClientCapabilities(general=general), initialization_options=options
                )
            )
            made.capabilities = answer.capabilities
            client.initialized(types.InitializedParams())
            yield made
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the wheel's node is a program that starts node
            await client.stop()  # type: ignore[no-untyped-call]
