"""The language server over stdio, which passes the editor's messages to its session."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from contracts.errors import ConfigError
from tools.lsp.config import load
from tools.lsp.key import take_key
from tools.lsp.session import ACCEPTED, Session


class SlipstreamLanguageServer(LanguageServer):
    """session: set by `initialize`."""

    session: Session


def serve_stdio(command_line: Mapping[str, Any], key_file: Path | None, environ: Mapping[str, str]) -> None:
    """Serve the editor at stdin and stdout until it sends `exit` or disconnects.

    command_line: settings of LanguageServerConfig. key_file: holds the API key; None for the environment's.
    """
    # pygls logs whole messages: the user's text, and the key in initializationOptions
    logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
    make_server(command_line, key_file, environ).start_io()


def make_server(
    command_line: Mapping[str, Any], key_file: Path | None, environ: Mapping[str, str]
) -> SlipstreamLanguageServer:
    """The server with its handlers, not yet started."""
    server = SlipstreamLanguageServer("slipstream", importlib.metadata.version("slipstream"))
    for method in (types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_CHANGE, types.TEXT_DOCUMENT_DID_CLOSE):
        del server.protocol.fm.builtin_features[method]  # our own documents, see documents.py

    def say(sentence: str) -> None:
        server.window_show_message(types.ShowMessageParams(types.MessageType.Error, sentence))

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        options = params.initialization_options
        try:
            options = dict(options) if isinstance(options, Mapping) else options
            key = take_key(options if isinstance(options, dict) else {}, key_file, environ)
            config = load(command_line, options)
        except ConfigError as error:
            raise JsonRpcInvalidParams(error.message) from None
        server.session = Session(config, key, server.workspace, say)

    @server.feature(types.SHUTDOWN)
    async def shutdown(_: None) -> None:
        await server.session.close()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        server.session.documents.open(params.text_document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        server.session.changed(params)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        server.session.closed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList:
        return await server.session.complete(params)

    @server.command(ACCEPTED)
    async def accepted(completion_id: str, characters: int, answered_ms: float) -> None:
        await server.session.accepted(completion_id, characters, answered_ms)

    return server
