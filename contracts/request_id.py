"""The names of one request: ours, in `x-request-id`, and the `id` inside an answer, which is ours behind a prefix."""

from __future__ import annotations

CHAT_PREFIX = "chatcmpl-"
COMPLETION_PREFIX = "cmpl-"
ANSWER_PREFIXES = (CHAT_PREFIX, COMPLETION_PREFIX)


def answer_id(prefix: str, request_id: str) -> str:
    """The `id` inside an answer; `request_id_of` leads back."""
    return prefix + request_id.removeprefix("req_")


def request_id_of(name: str) -> str:
    """Ours, from what a client has at hand: `req_…` as it is, `chatcmpl-…` and `cmpl-…` as theirs of it."""
    for prefix in ANSWER_PREFIXES:
        if name.startswith(prefix):
            return "req_" + name.removeprefix(prefix)
    return name
