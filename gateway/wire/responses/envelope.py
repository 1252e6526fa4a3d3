"""The response object around its output items: the request's settings, the state and the usage."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import LimitError, RequestError, SlipstreamError
from contracts.usage import Usage
from gateway.wire.prepared import Prepared
from gateway.wire.responses.prepare import Details
from gateway.wire.responses.schema import WebSearchTool

Json = dict[str, Any]


def settings(response_id: str, created_at: int, prepared: Prepared) -> Json:
    """The fields that stay the same from the first event to the last. created_at: Unix time in seconds."""
    assert isinstance(prepared.details, Details)
    request, sampling = prepared.details.asked.request, prepared.generation.sampling
    reasoning = request.reasoning
    text = {} if request.text is None else msgspec.to_builtins(request.text)
    tools = [tool for tool in request.tools or () if not isinstance(tool, WebSearchTool)]
    choice = "auto" if request.tool_choice is None else request.tool_choice
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "model": prepared.generation.public_model,
        "background": request.background is True,
        "conversation": None if request.conversation_id is None else {"id": request.conversation_id},
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {"effort": None if reasoning is None else reasoning.effort, "summary": None},
        "safety_identifier": request.safety_identifier,
        "service_tier": prepared.service_tier,
        "store": request.store is True,
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "text": {"format": {"type": "text"}, "verbosity": "medium", **text},
        "tool_choice": msgspec.to_builtins(choice),
        "tools": msgspec.Raw(msgspec.json.encode(tools)),
        "top_logprobs": 0,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "truncation": "disabled",
        "user": request.user,
    }


def state(
    status: str,
    output: list[Json],
    usage: Usage | None = None,
    error: SlipstreamError | None = None,
    incomplete: str | None = None,
    completed_at: int | None = None,
) -> Json:
    """The fields that change. incomplete: the reason of a response that was cut."""
    return {
        "status": status,
        "completed_at": completed_at,
        "error": None if error is None else error_json(error),
        "incomplete_details": None if incomplete is None else {"reason": incomplete},
        "output": output,
        "usage": None if usage is None else usage_json(usage),
    }


def usage_json(usage: Usage) -> Json:
    """Usage as this API's object. Input includes cached tokens, and output includes reasoning."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def error_json(error: SlipstreamError) -> Json:
    """The error of a failed response. `code` is a code that typed clients know, and `type` is ours."""
    code = "server_error"
    if isinstance(error, LimitError):
        code = "rate_limit_exceeded"
    elif isinstance(error, RequestError):
        code = "invalid_prompt"
    return {"code": code, "message": error.message, "param": error.param, "type": error.code}
