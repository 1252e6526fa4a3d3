"""One editor's session, from `initialize` to `shutdown`: its documents, its requests and messages to its user."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from lsprotocol import types
from pygls.workspace import Workspace

from tools.lsp.completer import Completer
from tools.lsp.config import LanguageServerConfig
from tools.lsp.documents import Document, Documents
from tools.lsp.file_path import file_path
from tools.lsp.gap import Selected, find_gap
from tools.lsp.gateway import Gateway, GatewayRefused
from tools.lsp.memory import Answer
from tools.lsp.newest import Newest

ACCEPTED = "slipstream.completionAccepted"
"""The command that an editor runs once it has inserted a completion."""
USER_BYTES = 8
"""Length of the random name that one editor's requests share, which reveals nothing about its user."""
DAY_MS = 86_400_000
"""The longest time that a gateway accepts."""


class Session:
    """key: the API key; "" for none. say: shows the user a sentence. Create it inside the event loop that serves it."""

    def __init__(
        self,
        config: LanguageServerConfig,
        key: str,
        workspace: Workspace,
        say: Callable[[str], None],
    ) -> None:
        self.documents = Documents(workspace.position_encoding or types.PositionEncodingKind.Utf16)
        self._workspace = workspace
        self._config = config
        self._gateway = Gateway(config.url, key, config.timeout_s)
        self._completer = Completer(config, self._gateway, secrets.token_hex(USER_BYTES))
        self._newest = Newest()
        self._say = say
        self._shown: set[str] = set()
        """Codes of the refusals that the user was shown since the gateway last answered."""
        self._completion_id = ""
        """The id of the gateway's last answer."""
        self._viewed: deque[str] = deque(maxlen=config.kept_answers)
        """Ids of the completions that were reported to the gateway as shown."""
        self._reports: set[asyncio.Task[None]] = set()
        """Reports that are being sent; the editor does not wait for them."""

    async def complete(self, params: types.InlineCompletionParams) -> types.InlineCompletionList:
        """textDocument/inlineCompletion. The response to a request that a newer one replaced is empty."""
        document = self.documents.find(params.text_document.uri)
        if document is None:
            return types.InlineCompletionList([])
        selected = params.context.selected_completion_info
        replaced = selected.range if selected else types.Range(params.position, params.position)
        invoked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
        gap = find_gap(
            document.source,
            document.offset_at_position(params.position),
            _selected(document, selected),
            prefix_chars=self._config.prefix_chars,
            suffix_chars=self._config.suffix_chars,
            path=file_path(document.uri, self._folders()),
            language=document.language_id or "",
        )
        try:
            answer = await self._newest.run(document.uri, self._completer.complete(gap, invoked=invoked))
        except GatewayRefused as refused:
            self._tell_once(refused)
            return types.InlineCompletionList([])
        if answer is None:
            return types.InlineCompletionList([])
        if answer.completion_id not in ("", self._completion_id):  # an answer from memory proves nothing
            self._completion_id = answer.completion_id
            self._shown.clear()
        if not answer.text:
            return types.InlineCompletionList([])
        self._given(answer.completion_id)
        return types.InlineCompletionList([_item(answer, replaced, selected.text if selected else "")])

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        """textDocument/didChange. It cancels the request for the previous text."""
        self._newest.cancel(params.text_document.uri)
        self.documents.change(params.text_document.uri, params.content_changes)

    def closed(self, uri: str) -> None:
        """textDocument/didClose."""
        self._newest.cancel(uri)
        self.documents.close(uri)

    async def accepted(self, completion_id: str, characters: int, answered_ms: float) -> None:
        """The user accepted `characters` of a completion shown at `answered_ms`; a failed report is ignored."""
        elapsed_ms = min(round(_now_ms() - answered_ms), DAY_MS)
        event = {"type": "select", "choice_index": 0, "characters": characters, "elapsed_ms": elapsed_ms}
        await self._report(completion_id, event)

    async def close(self) -> None:
        """Close the gateway's connections and cancel the reports that are being sent."""
        for report in self._reports:
            report.cancel()
        await self._gateway.close()

    def _given(self, completion_id: str) -> None:
        """Report a completion as shown when the editor receives it: LSP has no message for the actual display."""
        if completion_id in self._viewed:
            return
        self._viewed.append(completion_id)
        report = asyncio.create_task(self._report(completion_id, {"type": "view", "choice_index": 0}))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report(self, completion_id: str, event: dict[str, Any]) -> None:
        with contextlib.suppress(GatewayRefused):
            await self._gateway.report(completion_id, event)

    def _folders(self) -> list[str]:
        """The editor's folders, as URIs."""
        folders = [folder.uri for folder in self._workspace.folders.values()]
        return [*folders, self._workspace.root_uri] if self._workspace.root_uri else folders

    def _tell_once(self, refused: GatewayRefused) -> None:
        if refused.code not in self._shown:
            self._shown.add(refused.code)
            self._say(f"Slipstream: {refused.sentence}")


def _selected(document: Document, info: types.SelectedCompletionInfo | None) -> Selected | None:
    if info is None:
        return None
    start, end = (document.offset_at_position(each) for each in (info.range.start, info.range.end))
    return Selected(start, end, info.text)


def _item(answer: Answer, replaced: types.Range, selected: str) -> types.InlineCompletionItem:
    """selected: the text that the editor's list would insert. The item replaces it, and must begin with it.

    The text has LF in every document: editors insert their document's own line end, and Neovim would put a CR into the
    line.
    """
    arguments = [answer.completion_id, len(answer.text), _now_ms()]
    command = types.Command("Completion accepted", ACCEPTED, arguments=arguments)
    return types.InlineCompletionItem(selected + answer.text, range=replaced, command=command)


def _now_ms() -> float:
    return time.monotonic() * 1_000
