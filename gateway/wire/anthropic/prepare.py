"""Turns an Anthropic request into a Generation with the preparation of chat completions."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from contracts.errors import RequestError
from contracts.generation import Caller
from gateway.wire.anthropic.chat_request import converted
from gateway.wire.anthropic.schema import CountTokensRequest, MessagesRequest, ThinkingAdaptive, ThinkingOn
from gateway.wire.openai.prepare import prepare_chat
from gateway.wire.prepared import Prepared, Target

_MESSAGE = re.compile(r"messages\[(\d+)\]")
ErrorT = TypeVar("ErrorT", bound=RequestError)


class AnswerDetails(msgspec.Struct, frozen=True):
    """The details that the form of an answer depends on."""

    lowered: bool = False
    """Whether the output limit is the room in the model's context and not the request's `max_tokens`."""
    shows_thoughts: bool = True
    edits: bool = False
    """Whether the answer names the applied edits of the context, which are none."""


async def prepare_messages(
    asked: CountTokensRequest, request_id: str, caller: Caller, salt: str, target: Target
) -> Prepared:
    """Raises a RequestError that names the field, ContextTooLong if the prompt alone does not fit."""
    chat = converted(asked, target)
    try:
        prepared = await prepare_chat(chat.request, request_id, caller, salt, target, lowered=True)
    except RequestError as error:
        raise _in_clients_words(error, chat.paths) from None
    thinking = asked.thinking
    details = AnswerDetails(
        lowered=isinstance(asked, MessagesRequest) and prepared.generation.sampling.max_tokens < asked.max_tokens,
        shows_thoughts=not (isinstance(thinking, ThinkingOn | ThinkingAdaptive) and thinking.display == "omitted"),
        edits=asked.context_management is not None,
    )
    return msgspec.structs.replace(prepared, details=details)


def _in_clients_words(error: ErrorT, paths: list[str]) -> ErrorT:
    """The error with the field's path in the client's body: a turn may have become several messages."""
    found = None if error.param is None else _MESSAGE.match(error.param)
    if error.param is not None and found is not None and int(found.group(1)) < len(paths):
        path = paths[int(found.group(1))]
        error.message = error.message.replace(error.param, path)
        error.param = path
    return error
