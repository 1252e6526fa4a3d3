"""Converts a decoded body to an engine request, with templates, token ids, limits and defaults."""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from contracts.engine_parameters import NO_EFFORT, NOT_THINKING, TemplateValue, template_variables
from contracts.errors import ContextTooLong, InvalidField, ModelNotFound, UnsupportedField
from engines.embedded.grammar.guide import Guide
from engines.embedded.grammar.spec import GrammarSpec
from engines.embedded.http.bodies import ChatBody, CompletionBody, SamplingFields
from engines.embedded.http.form import form_of
from engines.embedded.request import Request, Sampling
from engines.embedded.service import Service
from engines.embedded.tools.choice import ToolUse, read_tools
from engines.embedded.tools.style import style_of
from engines.tokenizer.healing import Opening
from engines.tokenizer.off_loop import OffLoopTokenizer

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for /v1/completions."""

MAX_ID_DIGITS = 10


class _Asked(msgspec.Struct, frozen=True):
    """Values that the two endpoints take from different fields."""

    max_tokens: int | None
    logprobs: int | None
    choices: int
    guide: Guide | None
    grammar_s: float
    score_prompt: bool = False
    opening: Opening | None = None


class Decoder:
    """Decodes requests for one model, with its tokenizer, context, name and tool call style."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._grammar_config = service.config.grammar
        self._tokenizer = OffLoopTokenizer(service.tokenizer)
        self._style = style_of(service.tokenizer.tool_template_source)

    async def chat(self, body: ChatBody) -> tuple[Request, ToolUse | None]:
        """The request, and the tools that its output may call. Raises a RequestError that names the field."""
        self._require_model(body.model)
        _require_stream(body)
        if body.max_tokens is not None and body.max_completion_tokens is not None:
            raise InvalidField("Give max_completion_tokens or max_tokens, not both.", param="max_completion_tokens")
        if body.top_logprobs and not body.logprobs:
            raise InvalidField("top_logprobs needs logprobs to be true.", param="top_logprobs")
        form = form_of(body, self._grammar_config)
        parallel = body.parallel_tool_calls
        if parallel is None:
            parallel = self._service.tokenizer.calls_in_parallel
        use = read_tools(body.tools, body.tool_choice, parallel, self._style, self._grammar_config)
        if form is not None and use is not None:
            raise UnsupportedField(
                f"{form.field} together with tools that may be called is not supported by this engine.",
                param=form.field,
            )
        messages = [_plain(message, at) for at, message in enumerate(body.messages)]
        self._require_shown(messages)
        ids = await self._tokenizer.chat_ids(
            messages, use.tools if use else None, self._service.context_tokens, body.cache_salt or "", _variables(body)
        )
        guide, grammar_s = await self._guide(use.grammar if use else form, body)
        common = _Asked(
            max_tokens=body.max_completion_tokens or body.max_tokens,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            choices=body.n or 1,
            guide=guide,
            grammar_s=grammar_s,
        )
        return self._request(body, (tuple(ids),), common, "messages"), use

    async def completion(self, body: CompletionBody) -> Request:
        """The request. Raises a RequestError that names the field."""
        self._require_model(body.model)
        _require_stream(body)
        if body.max_tokens == 0 and not body.echo:
            raise InvalidField("max_tokens: 0 needs echo; the response would be empty otherwise.", param="max_tokens")
        if body.echo and body.suffix is not None:
            raise UnsupportedField("echo and suffix cannot be combined.", param="echo")
        returned, logprobs = body.n or 1, body.logprobs
        generated = body.best_of or returned
        if generated < returned:
            raise InvalidField(f"best_of is {generated}; it must be at least n, {returned}.", param="best_of")
        if generated > returned:
            if body.stream:
                raise InvalidField("best_of above n cannot be streamed: all choices are compared.", param="best_of")
            # the choices are compared by their log probabilities
            logprobs = logprobs or 0
        form = form_of(body, self._grammar_config)
        if body.begins_with is not None and form is not None:
            raise UnsupportedField(
                f"begins_with and {form.field} cannot be combined: a format decides how an output begins.",
                param="begins_with",
            )
        guide, grammar_s = await self._guide(form, body)
        common = _Asked(
            max_tokens=DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens,
            logprobs=logprobs,
            choices=generated,
            guide=guide,
            grammar_s=grammar_s,
            score_prompt=bool(body.echo) and body.logprobs is not None,
            opening=None if body.begins_with is None else self._service.tokenizer.opening(body.begins_with),
        )
        return self._request(body, await self._prompts(body), common, "prompt")

    async def _guide(self, form: GrammarSpec | None, body: SamplingFields) -> tuple[Guide | None, float]:
        """The guide and the seconds to compile it, including the wait for a compiler; 0 for a cached guide."""
        if form is None:
            return None, 0.0
        grammars, tenant = self._service.grammars, body.cache_salt or ""
        kept = grammars.kept(form, tenant)
        if kept is not None:
            return kept, 0.0
        began_s = time.monotonic()
        guide = await grammars.compile(form, tenant)
        return guide, time.monotonic() - began_s

    async def _prompts(self, body: CompletionBody) -> tuple[tuple[int, ...], ...]:
        if body.suffix is not None:
            if not isinstance(body.prompt, str):
                raise InvalidField("suffix needs prompt to be one string.", param="suffix")
            context, tenant = self._service.context_tokens, body.cache_salt or ""
            return (tuple(await self._tokenizer.fill_ids(body.prompt, body.suffix, context, tenant)),)
        prompt = body.prompt
        if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int)):
            prompt = [prompt]
        if not isinstance(prompt, list) or not prompt:
            raise InvalidField(
                "prompt must be a string, a list of strings, token ids or a list of them.", param="prompt"
            )
        return tuple([await self._ids(entry, body.cache_salt or "") for entry in prompt])

    async def _ids(self, prompt: Any, tenant: str) -> tuple[int, ...]:
        if isinstance(prompt, str):
            ids = await self._tokenizer.encode(prompt, self._service.context_tokens, tenant)
        else:
            try:
                ids = msgspec.convert(prompt, list[int])
            except msgspec.ValidationError:
                raise InvalidField("prompt: a list must hold only strings or only token ids.", param="prompt") from None
            vocabulary = self._service.model.vocab_size
            if any(not 0 <= id_ < vocabulary for id_ in ids):
                raise InvalidField(f"prompt: token ids lie between 0 and {vocabulary - 1}.", param="prompt")
        return tuple(ids)

    def _request(
        self, body: SamplingFields, prompts: tuple[tuple[int, ...], ...], common: _Asked, prompt_field: str
    ) -> Request:
        if not all(prompts):
            raise InvalidField(
                f"{prompt_field}: the prompt is empty; the model needs at least one token to continue.",
                param=prompt_field,
            )
        longest, context = max(map(len, prompts)), self._service.context_tokens
        output = 1 if common.max_tokens is None else common.max_tokens
        if longest + output > context:
            raise ContextTooLong(
                limit_tokens=context,
                prompt_tokens=longest,
                output_tokens=output,
                param="max_tokens" if longest < context else prompt_field,
            )
        choices = common.choices * len(prompts)
        if choices > self._service.config.max_choices:
            raise InvalidField(f"n times prompts is {choices}; at most {self._service.config.max_choices}.", param="n")
        adapter = None if body.lora_path is None else self._service.adapters.get(body.lora_path)
        return Request(
            rid=body.rid or uuid.uuid4().hex,
            prompts=prompts,
            sampling=self._sampling(body, common, context - longest),
            choices_per_prompt=common.choices,
            priority=body.priority or 0,
            start_within_s=body.start_within_s,
            cache_salt=body.cache_salt or "",
            # drafts match only the model without adapters
            speculate=body.speculation is not False and adapter is None,
            adapter=adapter,
            guide=common.guide,
            grammar_s=common.grammar_s,
            continues=prompt_field == "prompt",
            opening=common.opening,
        )

    def _sampling(self, body: SamplingFields, common: _Asked, room: int) -> Sampling:
        end_ids = frozenset() if body.ignore_eos else self._service.tokenizer.end_ids
        defaults = self._service.sampling_defaults
        return Sampling(
            max_tokens=room if common.max_tokens is None else common.max_tokens,
            temperature=defaults.temperature if body.temperature is None else body.temperature,
            top_p=defaults.top_p if body.top_p is None else body.top_p,
            top_k=max(body.top_k or 0, 0),
            min_p=body.min_p or 0.0,
            repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
            seed=body.seed,
            frequency_penalty=defaults.frequency_penalty_of(body.frequency_penalty, body.temperature),
            presence_penalty=body.presence_penalty or 0.0,
            logit_bias=self._logit_bias(body.logit_bias),
            stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
            stop_ids=end_ids | frozenset(body.stop_token_ids or ()),
            min_tokens=_min_tokens(body, common, room),
            logprobs=common.logprobs,
            score_prompt=common.score_prompt,
        )

    def _logit_bias(self, bias: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
        vocabulary = self._service.model.vocab_size
        pairs: list[tuple[int, float]] = []
        for text, value in (bias or {}).items():
            # check the length first, because Python parses no integer of more than 4,300 digits
            if not text.isdecimal() or len(text) > MAX_ID_DIGITS or int(text) >= vocabulary:
                raise InvalidField(f"logit_bias: {text[:32]!r} is no token id below {vocabulary}.", param="logit_bias")
            pairs.append((int(text), value))
        return tuple(pairs)

    def _require_shown(self, messages: list[dict[str, Any]]) -> None:
        """Refuse messages that the template would silently drop."""
        for at, message in enumerate(messages):
            if message["role"] == "tool" and not self._service.tokenizer.shows_tool_results:
                raise UnsupportedField(
                    f"messages[{at}] is a tool result, which this model's chat template does not support.",
                    param=f"messages[{at}].role",
                )

    def _require_model(self, name: str) -> None:
        if name != self._service.name:
            raise ModelNotFound(f"This engine serves {self._service.name!r}, not {name!r}.", param="model")
        if self._service.pooling is not None:
            raise UnsupportedField(f"{name!r} makes vectors and generates no text; use /v1/embeddings.", param="model")


def _require_stream(body: SamplingFields) -> None:
    if body.stream_options is not None and not body.stream:
        raise InvalidField("stream_options needs stream to be true.", param="stream_options")


def _variables(body: ChatBody) -> dict[str, TemplateValue]:
    """Variables of the chat template. Raises a RequestError that names the field."""
    effort = body.reasoning_effort
    if effort not in (None, NO_EFFORT):
        raise UnsupportedField(
            f"reasoning_effort: {effort[:32]!r} is not supported by this engine; it takes {NO_EFFORT!r} alone.",
            param="reasoning_effort",
        )
    variables = template_variables(body.chat_template_kwargs or {}, "chat_template_kwargs")
    return variables if effort is None else {**NOT_THINKING, **variables}


def _min_tokens(body: SamplingFields, common: _Asked, room: int) -> int:
    min_tokens, limit = body.min_tokens or 0, room if common.max_tokens is None else common.max_tokens
    if min_tokens > limit:
        raise InvalidField(f"min_tokens is {min_tokens}; at most {limit} tokens may be generated.", param="min_tokens")
    return min_tokens


def _plain(message: dict[str, Any], at: int) -> dict[str, Any]:
    """A message whose content is a text or text parts, which the template handles as in the gateway."""
    content = message.get("content")
    if not isinstance(message.get("role"), str):
        raise InvalidField(f"messages[{at}].role must be a string.", param=f"messages[{at}].role")
    if content is None:
        return {**message, "content": ""}
    if isinstance(content, str):
        return message
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        if len(texts) == len(content):
            return {**message, "content": [{"type": "text", "text": text} for text in texts]}
    raise UnsupportedField(f"messages[{at}].content: only text is supported.", param=f"messages[{at}].content")
