"""Turns a typed OpenAI request into a Generation, with a counted prompt, an output limit and the tenant's salt.

Counting and encoding happen only here: the reservation, the journal and the engine's request have the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contracts.engine_parameters import NO_EFFORT
from contracts.errors import ContextTooLong, InvalidField, UnsupportedField
from contracts.generation import Caller, ChatPrompt, Sampling, TextPrompt
from contracts.misfit import shortened
from gateway.wire.chat_prompt import counted_chat
from gateway.wire.fill.healing import opened
from gateway.wire.fill.layout import lay_out
from gateway.wire.fill.rendered import rendered_gap
from gateway.wire.gap import Gap
from gateway.wire.image_url import require_image_url
from gateway.wire.least_tokens import require_least
from gateway.wire.openai.engine_parameters import engine_parameters, template_kwargs
from gateway.wire.openai.gap import DEFAULT_MAX_TOKENS, keeps_rules, prepare_gap
from gateway.wire.openai.schema import (
    MAX_CHOICES,
    MAX_PROMPTS,
    AssistantMessage,
    ChatRequest,
    Common,
    CompletionRequest,
    DeveloperMessage,
    ImagePart,
    Message,
    NamedTool,
    RefusalPart,
    StreamOptions,
    TextFormat,
    TextPart,
    UserMessage,
)
from gateway.wire.openai.system_messages import with_one_system
from gateway.wire.prepared import Prepared, Target, output_limit, prepared, stop_texts
from gateway.wire.text_prompt import counted_texts


async def prepare_chat(
    request: ChatRequest, request_id: str, caller: Caller, salt: str, target: Target, *, lowered: bool = False
) -> Prepared:
    """lowered: see `output_limit`. Raises a RequestError that names the field, ContextTooLong if it cannot fit."""
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidField("'top_logprobs' requires 'logprobs' to be true.", param="top_logprobs")
    if request.store:
        raise UnsupportedField(
            "'store' is true, but Slipstream does not store chat completions. Remove it.", param="store"
        )
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise InvalidField(
            "Give 'max_completion_tokens' or the older 'max_tokens', not both.", param="max_completion_tokens"
        )
    choice: Any = request.tool_choice
    if choice is not None and choice not in ("auto", "none"):
        _require_tool(request)
    own = None if request.extra_body is None else engine_parameters(request, target)
    variables = None
    if own is not None or target.model.chat_template_kwargs or request.reasoning_effort == NO_EFFORT:
        variables = template_kwargs(own, request.reasoning_effort, target)
    messages = tuple(_message(message, index) for index, message in enumerate(request.messages))
    merged = 0
    if len(messages) > 1 and messages[0]["role"] == messages[1]["role"] == "system":
        messages, merged = with_one_system(messages)
    prompt = ChatPrompt(
        messages=messages,
        tools=tuple(msgspec.to_builtins(tool) for tool in request.tools) if request.tools else None,
        tool_choice=choice if choice is None or isinstance(choice, str) else msgspec.to_builtins(choice),
        parallel_tool_calls=request.parallel_tool_calls if request.tools else None,
        response_format=_response_format(request),
        reasoning_effort=request.reasoning_effort,
        template_kwargs=variables,
        merged=merged,
    )
    counted = await counted_chat(prompt, target, caller.organization_id)
    limit = request.max_completion_tokens or request.max_tokens
    param = "max_completion_tokens" if request.max_completion_tokens else "max_tokens"
    max_tokens = output_limit(limit, target.model.default_max_tokens, counted.tokens, target, param, lowered=lowered)
    return prepared(
        counted,
        _sampling(request, max_tokens, (request.top_logprobs or 0) if request.logprobs else None, target, own),
        request_id,
        caller,
        salt,
        target,
        stream=bool(request.stream),
        include_usage=_include_usage(request),
        session=request.prompt_cache_key or request.user or "",
        service_tier=request.service_tier,
        running_usage=_running_usage(request),
    )


async def prepare_completion(
    request: CompletionRequest, request_id: str, caller: Caller, salt: str, target: Target
) -> Prepared:
    """Raises a RequestError that names the field, ContextTooLong if the request cannot fit."""
    kept = request.n or 1
    tried = request.best_of or kept
    if tried < kept:
        raise InvalidField(f"'best_of' is {tried}; it must be at least 'n', which is {kept}.", param="best_of")
    if tried > kept and request.stream:
        raise InvalidField(
            "'best_of' above 'n' cannot be streamed, because all choices must be compared first. Leave out 'stream' "
            "or 'best_of'.",
            param="best_of",
        )
    prompts = _prompts(request, target.model.context_tokens)
    if len(prompts) * tried > MAX_CHOICES:
        field = "best_of" if tried > kept else "n"
        raise InvalidField(f"A request may have at most {MAX_CHOICES} choices (prompts x {field}).", param=field)
    gap = _gap(request, prompts, target)
    include_usage = _include_usage(request)
    own = None if request.extra_body is None else engine_parameters(request, target)
    if keeps_rules(gap, request, target):
        return await prepare_gap(gap, request, request_id, caller, salt, target, own, include_usage=include_usage)
    limits = (request.max_tokens, DEFAULT_MAX_TOKENS)
    if gap is not None:
        laid_out = await lay_out(gap, *limits, target, caller.organization_id, stop_texts(request.stop), own)
        counted = laid_out.counted
        sampling = laid_out.ends.added(_sampling(request, laid_out.max_tokens, request.logprobs, target, own))
    else:
        prompt = TextPrompt(tuple(prompts), echo=bool(request.echo))
        counted = await counted_texts(prompt, target, caller.organization_id)
        max_tokens = output_limit(*limits, counted.longest, target, "max_tokens")
        sampling = _sampling(request, max_tokens, request.logprobs, target, own)
        if request.begins_with is not None:
            counted = opened(counted, request.begins_with, max_tokens, sampling.stop, target, own)
    if tried > kept:
        sampling = msgspec.structs.replace(sampling, n=tried, best=kept)
    return prepared(
        counted,
        sampling,
        request_id,
        caller,
        salt,
        target,
        stream=bool(request.stream),
        include_usage=include_usage,
        session=request.user or "",
        typed=bool(request.user),
        gap=gap,
        running_usage=_running_usage(request),
    )


def _message(message: Message, index: int) -> dict[str, Any]:
    """A validated message as our own JSON value; the client's bytes are not passed on."""
    if isinstance(message, UserMessage) and isinstance(message.content, list):
        for number, part in enumerate(message.content):
            if isinstance(part, ImagePart):
                require_image_url(part.image_url.url, f"messages[{index}].content[{number}].image_url.url")
    if isinstance(message, AssistantMessage):
        message = _with_refusal_as_text(message)
    built: dict[str, Any] = msgspec.to_builtins(message)
    if isinstance(message, DeveloperMessage):
        built["role"] = "system"
    return built


def _require_tool(request: ChatRequest) -> None:
    """Raise InvalidField if the tool that must be called is not among the tools."""
    if not request.tools:
        raise InvalidField(
            "'tool_choice' requires a call, but there are no 'tools'. Add 'tools', or remove 'tool_choice'.",
            param="tool_choice",
        )
    if isinstance(request.tool_choice, NamedTool):
        name = request.tool_choice.function.name
        if all(tool.function.name != name for tool in request.tools):
            raise InvalidField(
                f"'tool_choice' names {shortened(repr(name))}, which is not among the 'tools'.", param="tool_choice"
            )


def _with_refusal_as_text(message: AssistantMessage) -> AssistantMessage:
    """The message with its refusal as text, because no model's template knows OpenAI's field for it."""
    content = message.content
    if content is None and message.refusal is not None:
        return msgspec.structs.replace(message, content=message.refusal, refusal=None)
    if isinstance(content, list):
        content = [TextPart(part.refusal) if isinstance(part, RefusalPart) else part for part in content]
    return msgspec.structs.replace(message, content=content, refusal=None)


def _response_format(request: ChatRequest) -> dict[str, Any] | None:
    if request.response_format is None or isinstance(request.response_format, TextFormat):
        return None
    built: dict[str, Any] = msgspec.to_builtins(request.response_format)
    return built


def _sampling(
    request: Common, max_tokens: int, logprobs: int | None, target: Target, own: dict[str, Any] | None
) -> Sampling:
    least = require_least(request.min_tokens or 0, max_tokens, target)
    if request.ignore_eos:
        least = require_least(max_tokens, max_tokens, target, "ignore_eos")
    return Sampling(
        max_tokens=max_tokens,
        n=request.n or 1,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        stop=stop_texts(request.stop),
        logit_bias=request.logit_bias or None,
        logprobs=logprobs,
        min_tokens=least,
        engine_parameters=own or None,
    )


def _include_usage(request: Common) -> bool:
    options: StreamOptions | None = request.stream_options
    if options is None:
        return False
    if not request.stream:
        raise InvalidField("'stream_options' is only allowed when 'stream' is true.", param="stream_options")
    if options.include_obfuscation:
        raise UnsupportedField(
            "Padding of stream events is not available here.", param="stream_options.include_obfuscation"
        )
    return bool(options.include_usage or options.continuous_usage_stats)


def _running_usage(request: Common) -> bool:
    return request.stream_options is not None and bool(request.stream_options.continuous_usage_stats)


def _gap(request: CompletionRequest, prompts: Sequence[str | tuple[int, ...]], target: Target) -> Gap | None:
    """The gap to fill: the text around `suffix`, or the client's own layout; None for a text to continue."""
    text = prompts[0] if len(prompts) == 1 else None
    gap = None
    if request.suffix is not None:
        if not isinstance(text, str):
            raise InvalidField("'suffix' needs exactly one text prompt.", param="prompt")
        if request.echo:
            raise UnsupportedField("'echo' and 'suffix' cannot be combined.", param="echo")
        gap = Gap(text, request.suffix)
    elif not request.echo and isinstance(text, str):
        gap = rendered_gap(text, target)
    if request.begins_with is not None and request.echo:
        raise UnsupportedField(
            "'begins_with' and 'echo' cannot be combined: the response leaves out the text of 'begins_with'. Remove "
            "one of them.",
            param="begins_with",
        )
    if request.begins_with is not None and gap is not None:
        raise UnsupportedField(
            "'begins_with' cannot be combined with 'suffix' or a prompt with fill-in-the-middle marks: there the "
            "gateway heals the half-typed word itself. Remove 'begins_with'.",
            param="begins_with",
        )
    return gap


def _prompts(request: CompletionRequest, context_tokens: int) -> list[str | tuple[int, ...]]:
    """One entry per prompt, for any of the four shapes. Too many ids are refused before each is checked."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise InvalidField("'prompt' must not be an empty list.", param="prompt")
    if isinstance(prompt[0], int):
        _require_fitting_ids(prompt, context_tokens, "prompt")
    elif len(prompt) > MAX_PROMPTS:
        raise InvalidField(f"'prompt' has {len(prompt)} entries; at most {MAX_PROMPTS} are allowed.", param="prompt")
    ids = [item for item in prompt if isinstance(item, int)]
    if len(ids) == len(prompt):
        return [tuple(ids)]
    prompts: list[str | tuple[int, ...]] = []
    for index, item in enumerate(prompt):
        if isinstance(item, str):
            prompts.append(item)
        elif isinstance(item, list) and item:
            _require_fitting_ids(item, context_tokens, f"prompt[{index}]")
            prompts.append(tuple(item))
        else:
            raise InvalidField("Each prompt must be text or a non-empty list of token ids.", param=f"prompt[{index}]")
    return prompts


def _require_fitting_ids(ids: Sequence[object], context_tokens: int, param: str) -> None:
    if len(ids) > context_tokens:
        raise ContextTooLong(limit_tokens=context_tokens, prompt_tokens=len(ids), output_tokens=1, param=param)
