"""Finds the usage of an attempt without the engine's final count: the engine's last report, or the gateway's own count
of the prompt and of the sent text."""

from __future__ import annotations

import logging

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import TextPrompt
from contracts.usage import Finish, Usage
from gateway.serving.attempt import Attempt

logger = logging.getLogger(__name__)


async def count(attempt: Attempt, finish: Finish) -> None:
    """Record the usage in the attempt, and in the response if its usage has not been sent.

    An engine that began to respond, or kept the request, is assumed to have read the prompt. Its report counts unless
    it has sent more, because some engines report once, early. The sent text is tokenized off the loop; if that is
    cancelled, the count by events stands.
    """
    request, tracker = attempt.request, attempt.tracker
    reported, delivered = tracker.total, tracker.delivered
    if reported is not None and tracker.final:
        attempt.finished(reported, finish)
        return
    given_up = finish is Finish.CLIENT_GONE or attempt.transcoder.satisfied
    left_alone = given_up and attempt.sent and not (attempt.rejected or attempt.prefill_failed)
    if reported is None and not attempt.first_event_seen and not left_alone:
        attempt.counted(Usage(), finish)
        return
    minimum, by_us = reported or Usage(attempt.prepared.prompt_tokens), reported is None
    usage = _at_least(minimum, delivered.events)
    attempt.counted(usage, finish, by_us=by_us)
    prompt = attempt.prepared.generation.prompt
    # an echoed prompt is in the text, but was not generated
    tokenizer = None if isinstance(prompt, TextPrompt) and prompt.echo else attempt.target.tokenizer
    # a separate queue, because a tenant whose prompts fill its own queue must still be counted by tokens
    turn = f"{request.caller.organization_id} delivered"
    try:
        usage = _at_least(minimum, await delivered.tokens(tokenizer, turn))
    except SlipstreamError as error:
        logger.warning("request %s: output counted by events: %s", request.request_id, error)
    attempt.counted(usage, finish, by_us=by_us)
    if finish is Finish.COMPLETE:
        tracker.tell(usage)


def _at_least(told: Usage, completion_tokens: int) -> Usage:
    return msgspec.structs.replace(told, completion_tokens=max(told.completion_tokens, completion_tokens))
