"""The ids of one request: its own in `x-request-id`, and the `id` in a response, which differs only in its prefix."""

from __future__ import annotations

CHAT_PREFIX = "chatcmpl-"
COMPLETION_PREFIX = "cmpl-"
MESSAGE_PREFIX = "msg_"
RESPONSE_PREFIX = "resp_"
ANSWER_PREFIXES = (CHAT_PREFIX, COMPLETION_PREFIX, MESSAGE_PREFIX, RESPONSE_PREFIX)


def answer_id(prefix: str, request_id: str) -> str:
    """The `id` inside a response; `request_id_of` reverses it."""
    return prefix + request_id.removeprefix("req_")


def request_id_of(name: str) -> str:
    """The request id from any form that a client has: `req_…` unchanged, ids of responses converted."""
    for prefix in ANSWER_PREFIXES:
        if name.startswith(prefix):
            return "req_" + name.removeprefix(prefix)
    return name
