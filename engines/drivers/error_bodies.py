"""Reads responses of OpenAI-compatible engines: usage objects, and error bodies in any of their three shapes.

An engine's own words reach a client only if they are one plain sentence about the request; stack traces, file paths,
addresses, keys and validation dumps do not. An engine quotes the client, so its text may also be the client's: patterns
search only its beginning, and each gap and number in them is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from contracts.errors import ContextTooLong, EngineFailed, EngineLoop, EngineRefused, Overloaded, SlipstreamError
from contracts.usage import Usage
from engines.drivers.engine_json import decode_engine_json

RETRY_AFTER_S = 1.0
MAX_READ = 2_048
"""Most characters of an engine's message that are examined."""
MAX_SENTENCE = 400
MAX_TOKENS = 10_000_000
"""Limit of one count. No context holds so many tokens; a greater number is an error of an engine or a proxy, and summed
over a request's choices it would overflow the ledger's columns and the router's messages."""
CLIENT_STATUSES = (400, 413, 422)
OUR_FIELDS = frozenset({"request_id", "rid", "cache_salt", "extra_key", "input_ids", "return_token_ids"})
"""Fields of bodies that drivers write and clients cannot."""
DRIVER_HINT = "the pool's `driver` may be another engine's"
CREDIT_HINT = "the account behind the pool's API key has no credit or quota left there"
NAMES_HINT = "compare the engine's /v1/models with the model's name or engine_model"

_TOO_LONG = (
    # SGLang: prompt alone
    re.compile(
        r"input \((?P<prompt>\d{1,9}) tokens\) is longer than the model's context length "
        r"\((?P<limit>\d{1,9}) tokens\)"
    ),
    # SGLang: prompt and output
    re.compile(
        r"maximum context length of (?P<limit>\d{1,9}) tokens\. .{0,200}?: (?P<prompt>\d{1,9}) tokens from the input "
        r"messages and (?P<output>\d{1,9}) tokens for the completion"
    ),
    # vLLM: a text that is too long for any tokenization; prompt and output; prompt alone
    re.compile(
        r"maximum context length is (?P<limit>\d{1,9}) tokens\. .{0,100}? contains (?P<characters>\d{1,9}) characters "
        r"\(more than"
    ),
    re.compile(
        r"maximum context length is (?P<limit>\d{1,9}) tokens.{0,200}?\((?P<prompt>\d{1,9}) in the "
        r"(?:messages|prompt), (?P<output>\d{1,9}) in the completion\)"
    ),
    re.compile(
        r"maximum (?:context|model) length (?:is|of) (?P<limit>\d{1,9})\b(?: tokens)?.{0,200}? "
        r"(?P<prompt>\d{1,9}) (?:input )?tokens"
    ),
    # the embedded engine uses the gateway's sentences
    re.compile(r"context is (?P<limit>\d{1,9}) tokens\. The prompt has (?P<prompt>\d{1,9}) tokens, which leaves none"),
    re.compile(
        r"context is (?P<limit>\d{1,9}) tokens\. The prompt has (?P<prompt>\d{1,9}) tokens and "
        r"(?P<output>\d{1,9}) are (?:requested as output|asked for)"  # release 0.1 wrote "asked for"
    ),
    # TensorRT-LLM: prompt alone, with chunked prefill and without; prompt and output
    re.compile(
        r"max_seq_len \((?P<limit>\d{1,9})\) - `splited_prompt_len` \((?P<prompt>\d{1,9})\) - `query_token_len`"
    ),
    re.compile(
        r"The sum of prompt length \((?P<prompt>\d{1,9})(?:\.\d{1,3})?\), query length .{0,20}? should not exceed "
        r"max_num_tokens \((?P<limit>\d{1,9})\)"
    ),
    re.compile(
        r"The sum of prompt length \((?P<prompt>\d{1,9})(?:\.\d{1,3})?\) and query length .{0,20}? max_tokens "
        r"\((?P<output>\d{1,9})\) should not exceed max_seq_len \((?P<limit>\d{1,9})\)"
    ),
    # llama.cpp
    re.compile(
        r"request \((?P<prompt>\d{1,9}) tokens\) exceeds the available context size \((?P<limit>\d{1,9}) tokens\)"
    ),
    # llama.cpp: a text for a vector must fit its physical batch; the status is 500
    re.compile(
        r"input \((?P<prompt>\d{1,9}) tokens\) is too large to process.{0,100}?batch size: (?P<limit>\d{1,9})\)"
    ),
)
_VALIDATION = re.compile(
    r"'loc': (?:\('body', '|'body\.)(?P<field>\w{1,100}).{0,500}?'msg': (?P<quote>['\"])(?P<text>.{0,400}?)(?P=quote)",
    re.DOTALL,
)
_VLLM_PARAMETER = re.compile(r" \(parameter=\w{1,100}(?:, value=.{0,2000})?\)$", re.DOTALL)
"""vLLM's text after its sentence; our response has a separate field for it."""
_INTERNAL = re.compile(
    # paths of a program, a disk or a network
    r"Traceback|File \"|\w\.py\b|(?<![\w#])/[\w.-]+/|0x[0-9a-f]{6,}|://|\blocalhost\b"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9A-Fa-f]{1,4}:){3}|\[[0-9A-Fa-f]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\]"
    r"|\w\.(?:internal|local|svc|lan|corp)\b|[A-Za-z][\w-]*\.[\w.-]+:\d{2,5}\b|[A-Za-z][\w-]*:\d{4,5}\b"
    # keys and their owners
    r"|\b(?:sk|org|proj)-\w|\bhf_\w|\bBearer\s"
    # messages of Python and jinja2 about their own objects, such as when a chat template fails under vLLM
    r"|has no attribute|NoneType|<class '|can only concatenate"
    r"|(?:un|not )(?:hashable|subscriptable|iterable|callable)|jinja"
)


class TransferFailed(EngineFailed):
    """A pair's decode engine reports that a prompt's keys and values did not arrive from the prefill engine."""


class ErrorBody(msgspec.Struct, frozen=True):
    """Contents of an error body."""

    message: str
    """Its first `MAX_READ` characters."""
    code: str
    """The code as text; engines send numbers, strings and null."""
    kind: str
    """The body's `type`."""
    param: str | None


def error_body(body: bytes) -> ErrorBody:
    """Read `{"error": {"message", …}}`, the flat `{"object": "error", "message", …}` or FastAPI's `{"detail": "…"}`;
    all fields are empty for any other body."""
    try:
        decoded = decode_engine_json(body, object, "The engine's error cannot be read.")
    except EngineFailed:
        return ErrorBody("", "", "", None)
    if isinstance(decoded, dict) and "error" in decoded:
        decoded = decoded["error"]
    if isinstance(decoded, str):
        return ErrorBody(decoded[:MAX_READ], "", "", None)
    if not isinstance(decoded, dict):
        return ErrorBody("", "", "", None)
    message, code, kind, param = (decoded.get(name) for name in ("message", "code", "type", "param"))
    message = message or decoded.get("detail")
    return ErrorBody(
        message[:MAX_READ] if isinstance(message, str) else "",
        "" if code is None else str(code),
        kind if isinstance(kind, str) else "",
        param if isinstance(param, str) else None,
    )


def engine_error(status: int, body: bytes) -> SlipstreamError:
    """A non-200 response, or a stream's error event with its code as the status, as one of our errors."""
    reported = error_body(body)
    too_long = context_too_long(reported.message)
    if too_long is not None:
        return too_long
    if status in CLIENT_STATUSES:
        param = (reported.param or "").removeprefix("body.")
        if param in OUR_FIELDS:
            return EngineFailed(
                "The model is misconfigured here: its engine refuses a field that the gateway sends. Tell the "
                "operator, with this response's x-request-id.",
                detail=f"status {status}: {reported.message[:MAX_SENTENCE]}; {DRIVER_HINT}",
            )
        return EngineRefused(sentence_of(reported.message), param=_safe(param) or None)
    # for the log, because the operator must fix the cause
    detail = reported.message[:MAX_SENTENCE]
    reason = f"status {status}: {detail or 'no reason given'}"
    if status == 402 or (status == 429 and "insufficient_quota" in (reported.code, reported.kind)):
        # no Retry-After: waiting does not refill the account
        return EngineFailed(
            "The engine's provider does not serve this deployment's account. Tell the operator, with this answer's "
            "x-request-id.",
            detail=f"{reason}; {CREDIT_HINT}",
        )
    if status in (429, 503):
        return Overloaded("The engine is at its limit. Try again shortly.", retry_after_s=RETRY_AFTER_S, detail=reason)
    if status in (401, 403):
        # the client's own key was valid
        return EngineFailed(
            "The engine does not accept the API key it is sent.", retry_after_s=RETRY_AFTER_S, detail=detail
        )
    if status == 404:
        # Usually an unknown name. The engine's sentence lists models by its own names, which helps the operator but
        # misleads a client that knows our names.
        return EngineFailed(
            "The model is misconfigured here: its engine does not serve it. Tell the operator, with this answer's "
            "x-request-id.",
            detail=f"{reason}; {NAMES_HINT}",
        )
    if status == 501:
        # llama.cpp was not started for vectors, scores or chat: its sentence names the missing flag
        return EngineFailed(
            "The model is misconfigured here: its engine was not started for such requests. Tell the operator, with "
            "this answer's x-request-id.",
            detail=reason,
        )
    if reported.code == EngineLoop.code:
        return EngineFailed(
            "The model is misconfigured here: its engine is this deployment's own gateway. Tell the operator, with "
            "this answer's x-request-id.",
            detail=reason,
        )
    return EngineFailed(f"The engine answered with status {status}.", retry_after_s=RETRY_AFTER_S, detail=detail)


def event_error(event: bytes, read: Callable[[int, bytes], SlipstreamError]) -> SlipstreamError:
    """An error event in a stream as one of our errors. read: `Driver.error`, for an event that carries a status.

    A 4xx is a refusal, even after generated text. Any other status, or a code that is not a status, is the engine's own
    failure, unless it reports that the other half of a pair has failed.
    """
    code = error_body(event).code
    if len(code) == 3 and code.isascii() and code.isdigit():
        error = read(int(code), event)
        if code.startswith("4") or isinstance(error, TransferFailed):
            return error
    return EngineFailed("The engine reported an error while generating.", retry_after_s=RETRY_AFTER_S)


def context_too_long(message: str) -> ContextTooLong | None:
    """The engine's error about length as ours; None if the message is about something else."""
    for pattern in _TOO_LONG:
        match = pattern.search(message)
        if match is not None:
            found = match.groupdict()
            limit = int(found["limit"])
            characters = found.get("characters")
            return ContextTooLong(
                limit_tokens=limit,
                prompt_tokens=int(found["prompt"]) if characters is None else limit + 1,
                output_tokens=int(found.get("output") or 0),
                param="max_tokens" if found.get("output") else "prompt",
                untokenized=None if characters is None else f"{characters} characters",
            )
    return None


def sentence_of(message: str) -> str:
    """One line that is safe to show to a client."""
    validation = _VALIDATION.search(message)
    if validation is None:
        sentence = _VLLM_PARAMETER.sub("", message)
    else:
        sentence = f"{validation['field']}: {validation['text']}"
    return _safe(sentence) or "The engine found the request invalid."


def _safe(message: str) -> str:
    """The message if it is one plain sentence, else an empty text."""
    line = message.strip()
    return "" if "\n" in line or len(line) > MAX_SENTENCE or _INTERNAL.search(line) else line


def with_drafts(usage: Usage, extension: Any) -> Usage:
    """`usage` with the draft tokens of all choices; unchanged without a valid report.

    extension: SGLang's `sglext`, or vLLM's `metrics`, which it sends with `--per-request-spec-decode-metrics`.
    """
    if not isinstance(extension, dict):
        return usage
    details = extension.get("spec_tokens_details") or extension.get("speculative_decoding")
    entries = details if isinstance(details, list) else [details]
    choices = [entry for entry in entries if isinstance(entry, dict)]
    if not choices:
        return usage
    try:
        drafts = sum(_count(each.get("spec_num_proposed_drafts") or each.get("num_draft_tokens")) for each in choices)
        accepted = sum(
            _count(each.get("spec_num_correct_drafts") or each.get("num_accepted_draft_tokens")) for each in choices
        )
    except (OverflowError, TypeError, ValueError):
        return usage
    if max(drafts, accepted) > MAX_TOKENS:
        return usage
    # SGLang reports its checks times its initial draft length, which an adaptive table may have raised since
    return msgspec.structs.replace(usage, draft_tokens=max(drafts, accepted), accepted_draft_tokens=accepted)


_UNREADABLE = "The engine reported a usage that cannot be read."


def usage_of(value: Any) -> Usage:
    """Read an OpenAI usage object. Missing and null counts are 0, and a part is capped at its whole. Raises
    EngineFailed if it is not such an object, or if a count is negative or more than `MAX_TOKENS`."""
    try:
        prompt_details = value.get("prompt_tokens_details") or {}
        completion_details = value.get("completion_tokens_details") or {}
        prompt, completion = int(value.get("prompt_tokens") or 0), int(value.get("completion_tokens") or 0)
        cached = int(prompt_details.get("cached_tokens") or 0)
        written = int(prompt_details.get("cache_write_tokens") or 0)
        # SGLang reports reasoning next to the counts, OpenAI inside the details
        reasoning = int(value.get("reasoning_tokens") or completion_details.get("reasoning_tokens") or 0)
        accepted = int(completion_details.get("accepted_prediction_tokens") or 0)
        rejected = int(completion_details.get("rejected_prediction_tokens") or 0)
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise EngineFailed(_UNREADABLE) from None
    counts = prompt, completion, cached, written, reasoning, accepted, rejected
    if min(counts) < 0 or max(counts) > MAX_TOKENS:
        raise EngineFailed(_UNREADABLE)
    # xAI counts reasoning next to the completion, as its total shows; elsewhere, the completion includes it
    if reasoning and value.get("total_tokens") == prompt + completion + reasoning:
        completion = min(completion + reasoning, MAX_TOKENS)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=min(cached, prompt),
        reasoning_tokens=min(reasoning, completion),
        cache_write_tokens=min(written, prompt),
        draft_tokens=accepted + rejected,
        accepted_draft_tokens=accepted,
    )


def _count(value: Any) -> int:
    """The value as a count; null is 0. Raises ValueError if it is out of range, and the errors of `int`."""
    count = int(value or 0)
    if not 0 <= count <= MAX_TOKENS:
        raise ValueError(value)
    return count
