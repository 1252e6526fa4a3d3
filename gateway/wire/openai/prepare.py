"""A typed OpenAI request becomes a Generation: prompt counted and encoded, output limit fixed, tenant's salt set.

Counting and encoding happen here, once: what was reserved, what the journal says and what the engine is told are the
same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contracts.errors import ContextTooLong, InvalidField, SpecialToken, UnsupportedField, WrongEndpoint
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt
from contracts.prefix import holds_more_than_text, of_generation
from engines.drivers.base import Capabilities
from engines.tokenizer.sound import require_sound
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.openai.schema import (
    MAX_CHOICES,
    MAX_PROMPTS,
    ChatRequest,
    Common,
    CompletionRequest,
    DeveloperMessage,
    ImagePart,
    Message,
    NamedTool,
    StreamOptions,
    TextFormat,
    UserMessage,
)
from gateway.wire.prepared import Prepared, Target

MARKS = 16
"""Most control tokens that a driver or an engine puts around a text: beginning, end, and the four of a gap."""
COMPLETION_DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""


async def prepare_chat(request: ChatRequest, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
    """Raises RequestError naming the field; ContextTooLong when it cannot fit."""
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidField("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs")
    if request.store:
        raise UnsupportedField("Nothing is stored here; leave 'store' out.", param="store")
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise InvalidField(
            "Give 'max_completion_tokens' or the older 'max_tokens', not both.", param="max_completion_tokens"
        )
    messages = tuple(_message(message, index) for index, message in enumerate(request.messages))
    tools = tuple(msgspec.to_builtins(tool) for tool in request.tools) if request.tools else None
    counted_tools = _tools_in_prompt(tools, request.tool_choice, target.capabilities)
    ids = await _encode_chat(messages, counted_tools, target, caller.organization_id)
    prompt_tokens = _estimate(_json_bytes(messages, tools)) if ids is None else len(ids)
    asked = request.max_completion_tokens or request.max_tokens
    param = "max_completion_tokens" if request.max_completion_tokens else "max_tokens"
    choice: Any = request.tool_choice
    generation = Generation(
        request_id=request_id,
        caller=caller,
        tier=target.model.tier,
        model=target.model.name,
        prompt=ChatPrompt(
            messages=messages,
            tools=tools,
            tool_choice=choice if choice is None or isinstance(choice, str) else msgspec.to_builtins(choice),
            parallel_tool_calls=request.parallel_tool_calls if tools else None,
            response_format=_response_format(request),
            reasoning_effort=request.reasoning_effort,
        ),
        sampling=_sampling(
            request,
            _max_tokens(asked, target.model.default_max_tokens, prompt_tokens, target, param),
            (request.top_logprobs or 0) if request.logprobs else None,
        ),
        stream=bool(request.stream),
        include_usage=_include_usage(request),
        cache_salt=salt,
    )
    exact = target.tokenizer is not None and not any(map(holds_more_than_text, messages))
    # What a template, an image or an engine's own way with tools adds is unknown here, but no engine takes more than
    # the model's context.
    bound = max(prompt_tokens, target.model.context_tokens)
    if target.tokenizer is None:
        bound = max(bound, _json_bytes(messages, tools))
    elif exact and _renders_all(request, target.tokenizer.tokenizer, target.capabilities):
        bound = prompt_tokens
    session = request.prompt_cache_key or request.user or ""
    return Prepared(generation, prompt_tokens, exact, bound, session, of_generation(generation, ids))


async def prepare_completion(
    request: CompletionRequest, request_id: str, caller: Caller, salt: str, target: Target
) -> Prepared:
    """Raises RequestError naming the field; ContextTooLong when it cannot fit."""
    wanted = request.n or 1
    tried = request.best_of or wanted
    if tried < wanted:
        raise InvalidField(f"'best_of' is {tried}; it must be at least 'n', {wanted}.", param="best_of")
    if tried > wanted and request.stream:
        raise InvalidField("'best_of' above 'n' cannot be streamed: all choices are compared.", param="best_of")
    prompts = _prompts(request, target.model.context_tokens)
    if len(prompts) * tried > MAX_CHOICES:
        field = "best_of" if tried > wanted else "n"
        raise InvalidField(f"At most {MAX_CHOICES} choices in one request (prompts x {field}).", param=field)
    prompt, longest, total = await _encode_prompts(prompts, request, target, caller.organization_id)
    max_tokens = _max_tokens(request.max_tokens, COMPLETION_DEFAULT_MAX_TOKENS, longest, target, "max_tokens")
    sampling = _sampling(request, max_tokens, request.logprobs)
    if tried > wanted:
        sampling = msgspec.structs.replace(sampling, n=tried, best=wanted)
    generation = Generation(
        request_id=request_id,
        caller=caller,
        tier=target.model.tier,
        model=target.model.name,
        prompt=prompt,
        sampling=sampling,
        stream=bool(request.stream),
        include_usage=_include_usage(request),
        cache_salt=salt,
    )
    bound = total if target.tokenizer is not None else _prompts_bound(prompts, request)
    session, chain = request.user or "", of_generation(generation)
    return Prepared(generation, total, target.tokenizer is not None, bound, session, chain)


def _message(message: Message, index: int) -> dict[str, Any]:
    """Our own JSON value of a validated message: the client's bytes go no further."""
    if isinstance(message, UserMessage) and isinstance(message.content, list):
        for number, part in enumerate(message.content):
            if isinstance(part, ImagePart) and not part.image_url.url.startswith("data:"):
                raise UnsupportedField(
                    "Images are taken as data: URLs only; this deployment fetches nothing on a client's behalf.",
                    param=f"messages[{index}].content[{number}].image_url.url",
                )
    built: dict[str, Any] = msgspec.to_builtins(message)
    if isinstance(message, DeveloperMessage):
        built["role"] = "system"
    return built


def _response_format(request: ChatRequest) -> dict[str, Any] | None:
    if request.response_format is None or isinstance(request.response_format, TextFormat):
        return None
    built: dict[str, Any] = msgspec.to_builtins(request.response_format)
    return built


def _sampling(request: Common, max_tokens: int, logprobs: int | None) -> Sampling:
    stop = request.stop
    return Sampling(
        max_tokens=max_tokens,
        n=request.n or 1,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        logit_bias=request.logit_bias or None,
        logprobs=logprobs,
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
    return bool(options.include_usage)


def _max_tokens(asked: int | None, default: int, prompt_tokens: int, target: Target, param: str) -> int:
    """The output limit that is reserved and written into the engine's request.

    Without a tokenizer the prompt's count is an estimate, so the engine's own check decides instead of ours.
    """
    limit = target.model.context_tokens
    room = limit - prompt_tokens
    if target.tokenizer is None:
        return min(asked or default, limit)
    if room < 1 or (asked is not None and asked > room):
        raise ContextTooLong(
            limit_tokens=limit,
            prompt_tokens=prompt_tokens,
            output_tokens=asked or 1,
            param=param if asked else "prompt",
        )
    return asked if asked is not None else min(default, room)


def _tools_in_prompt(
    tools: tuple[dict[str, Any], ...] | None, choice: str | NamedTool | None, capabilities: Capabilities
) -> tuple[dict[str, Any], ...] | None:
    if tools is None or capabilities.tools_in_prompt == "all":
        return tools
    if isinstance(choice, NamedTool) and capabilities.tools_in_prompt == "chosen":
        return tuple(tool for tool in tools if tool["function"]["name"] == choice.function.name)
    return None if choice == "none" else tools


def _renders_all(request: ChatRequest, tokenizer: Tokenizer, capabilities: Capabilities) -> bool:
    """Whether the conversation as counted holds all that the engine may put into its prompt.

    The embedded engine renders the same template from the same folder. Others have ways of their own with tools for
    which the template has no place, and with a schema or a reasoning effort, which the count leaves out.
    """
    if capabilities.literal_text:
        return True
    if request.reasoning_effort is not None or not isinstance(request.response_format, TextFormat | None):
        return False
    return not request.tools or "tools" in (tokenizer.tool_template_source or "")


async def _encode_chat(
    messages: tuple[dict[str, Any], ...], tools: tuple[dict[str, Any], ...] | None, target: Target, organization_id: str
) -> list[int] | None:
    """The conversation's ids, or None where there is no tokenizer."""
    if target.tokenizer is None:
        return None
    tokenizer = target.tokenizer.tokenizer
    if not tokenizer.has_chat_template:
        raise WrongEndpoint(f"'{target.model.name}' is not a chat model; use /v1/completions.", param="model")

    def require_plain(parsed: Sequence[dict[str, Any]]) -> None:
        # as templates see them: JSON's escapes are undone by then
        for index, (message, seen) in enumerate(zip(messages, parsed, strict=True)):
            for name, value in message.items():
                both = value if seen[name] is value else (value, seen[name])
                _require_no_special(tokenizer, both, f"messages[{index}].{name}")
        _require_no_special(tokenizer, tools, "tools")

    def ids() -> list[int]:
        check = None if target.capabilities.literal_text else require_plain
        return tokenizer.chat_ids(messages, tools or None, target.model.context_tokens, check)

    return await target.tokenizer.run(organization_id, (messages, tools), ids)


def _texts(value: Any) -> list[str]:
    """Every text in a JSON value that a chat template may put into the prompt; text parts also as one, joined."""
    found: list[str] = []
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, str):
            found.append(inner)
        elif isinstance(inner, dict):
            left += [part for name, held in inner.items() if name != "image_url" for part in (name, held)]
        elif isinstance(inner, list | tuple):
            parts = [part.get("text") for part in inner if isinstance(part, dict)]
            found.append("".join(part for part in parts if isinstance(part, str)))
            left += inner
    return found


async def _encode_prompts(
    prompts: list[str | tuple[int, ...]], request: CompletionRequest, target: Target, organization_id: str
) -> tuple[TextPrompt, int, int]:
    """The prompts as the engine shall get them, the longest one's tokens and the sum."""
    tokenizer, echo = target.tokenizer, bool(request.echo)
    if request.suffix is not None and (len(prompts) != 1 or not isinstance(prompts[0], str)):
        raise InvalidField("'suffix' needs exactly one text prompt.", param="prompt")
    if tokenizer is None:
        if not target.capabilities.checks_token_ids and not all(isinstance(prompt, str) for prompt in prompts):
            raise UnsupportedField(
                "Token ids are not taken for this model here: it has no tokenizer configured to check them.",
                param="prompt",
            )
        counts = [len(p) if not isinstance(p, str) else _estimate(len(p.encode())) for p in prompts]
        counts[0] += _estimate(len((request.suffix or "").encode()))
        return TextPrompt(tuple(prompts), request.suffix, echo=echo), max(counts), sum(counts)
    _require_known_ids(prompts, tokenizer.tokenizer)
    if request.suffix is not None and echo:
        raise UnsupportedField("'echo' and 'suffix' cannot be combined.", param="echo")
    # before it takes a turn: what cannot fit need not wait
    texts = [text for text in (*prompts, request.suffix) if isinstance(text, str)]
    for text in texts:
        tokenizer.tokenizer.require_fitting(require_sound(text), target.model.context_tokens)
    encoded = await tokenizer.run(organization_id, texts, lambda: _ids(prompts, request, target, tokenizer.tokenizer))
    counts = [len(ids) for ids in encoded]
    if target.capabilities.token_prompts:
        prompt = TextPrompt(tuple(encoded), echo=echo, filled_gap=request.suffix is not None)
    else:
        prompt = TextPrompt(tuple(prompts), request.suffix, echo=echo)
    return prompt, max(counts), sum(counts)


def _ids(
    prompts: list[str | tuple[int, ...]], request: CompletionRequest, target: Target, tokenizer: Tokenizer
) -> list[tuple[int, ...]]:
    """Each prompt's ids, the gap's if there is one."""
    limit = target.model.context_tokens
    if request.suffix is not None:
        assert isinstance(prompts[0], str)
        encoded = [tuple(tokenizer.fill_ids(prompts[0], request.suffix, limit))]
    else:
        encoded = [tuple(tokenizer.encode(p, limit)) if isinstance(p, str) else p for p in prompts]
    if not target.capabilities.token_prompts:
        _require_no_special(tokenizer, [prompt for prompt in prompts if isinstance(prompt, str)], "prompt")
        _require_no_special(tokenizer, request.suffix, "suffix")
    return encoded


def _prompts(request: CompletionRequest, context_tokens: int) -> list[str | tuple[int, ...]]:
    """One entry per prompt, whichever of the four shapes the client used. Ids that cannot fit are not looked at."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise InvalidField("'prompt' must not be an empty list.", param="prompt")
    if isinstance(prompt[0], int):
        _require_fitting_ids(prompt, context_tokens, "prompt")
    elif len(prompt) > MAX_PROMPTS:
        raise InvalidField(f"'prompt' has {len(prompt)} entries; at most {MAX_PROMPTS} are taken.", param="prompt")
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


def _require_known_ids(prompts: list[str | tuple[int, ...]], tokenizer: Tokenizer) -> None:
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str) and max(prompt, default=0) >= tokenizer.vocabulary_size:
            raise InvalidField(
                f"Token id {max(prompt)} is outside this model's vocabulary of {tokenizer.vocabulary_size}.",
                param=f"prompt[{index}]" if len(prompts) > 1 else "prompt",
            )


def _require_no_special(tokenizer: Tokenizer, value: Any, param: str) -> None:
    for text in _texts(value):
        found = tokenizer.special_in(text)
        if found is not None:
            raise SpecialToken(
                f"The text contains {found!r}, one of this model's control tokens. Remove it or break it up.",
                param=param,
            )


def _json_bytes(messages: tuple[dict[str, Any], ...], tools: tuple[dict[str, Any], ...] | None) -> int:
    return len(msgspec.json.encode(messages)) + len(msgspec.json.encode(tools or ()))


def _prompts_bound(prompts: list[str | tuple[int, ...]], request: CompletionRequest) -> int:
    """The most tokens the prompts can be: a token stands for at least one byte, and an engine may put a few marks
    around a text or a gap."""
    suffix_bytes = len((request.suffix or "").encode())
    lengths = [len(prompt) if not isinstance(prompt, str) else len(prompt.encode()) for prompt in prompts]
    return sum(length + suffix_bytes + MARKS for length in lengths)


def _estimate(length_bytes: int) -> int:
    """Tokens of a text nobody can count here: three bytes each, on the high side for English and code."""
    return length_bytes // 3 + 4
