"""Usage of an attempt without the engine's final count: its last report, or our count of the prompt and of the text it
sent."""

from __future__ import annotations

import logging

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import TextPrompt
from contracts.usage import Finish, Usage
from gateway.serving.attempt import Attempt

logger = logging.getLogger(__name__)


async def count(attempt: Attempt, finish: Finish) -> None:
    """Record it in the attempt, and in the response if that is still to come.

    An engine that had begun, or kept the request, is taken to have read the prompt. Its report counts unless it has
    sent more: some engines report once, early. The sent text is tokenized off the loop; should that be cancelled, the
    count by events stands.
    """
    request, tracker = attempt.request, attempt.tracker
    told, delivered = tracker.total, tracker.delivered
    if told is not None and tracker.final:
        attempt.finished(told, finish)
        return
    given_up = finish is Finish.CLIENT_GONE or attempt.transcoder.satisfied
    left_alone = given_up and attempt.sent and not attempt.rejected
    if told is None and not attempt.first_event_seen and not left_alone:
        attempt.counted(Usage(), finish)
        return
    least, by_us = told or Usage(attempt.prepared.prompt_tokens), told is None
    usage = _at_least(least, delivered.events)
    attempt.counted(usage, finish, by_us=by_us)
    prompt = attempt.prepared.generation.prompt
    # an echoed prompt is in the text, and was not generated
    tokenizer = None if isinstance(prompt, TextPrompt) and prompt.echo else attempt.target.tokenizer
    # turns of their own: a tenant whose prompts fill its queue must not be counted by events because of that
    turn = f"{request.caller.organization_id} delivered"
    try:
        usage = _at_least(least, await delivered.tokens(tokenizer, turn))
    except SlipstreamError as error:
        logger.warning("request %s: output counted by events: %s", request.request_id, error)
    attempt.counted(usage, finish, by_us=by_us)
    if finish is Finish.COMPLETE:
        tracker.tell(usage)


def _at_least(told: Usage, completion_tokens: int) -> Usage:
    return msgspec.structs.replace(told, completion_tokens=max(told.completion_tokens, completion_tokens))
