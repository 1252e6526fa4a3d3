"""Turns a decoded body into an engine request: templates, token ids, limits and defaults."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from contracts.errors import ContextTooLong, InvalidField, ModelNotFound, UnsupportedField
from engines.embedded.http.bodies import ChatBody, CompletionBody, SamplingFields
from engines.embedded.request import Request, Sampling
from engines.embedded.service import Service
from engines.tokenizer.off_loop import OffLoopTokenizer

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for /v1/completions."""


class Decoder:
    """Knows one model: its tokenizer, its context, its name."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tokenizer = OffLoopTokenizer(service.tokenizer)

    async def chat(self, body: ChatBody) -> Request:
        """Raises RequestError of a kind that names the field."""
        self._require_model(body.model)
        if body.tools:
            raise UnsupportedField("tools are not supported by this engine.", param="tools")
        if body.response_format is not None and body.response_format.get("type") != "text":
            raise UnsupportedField("Only response_format text is supported by this engine.", param="response_format")
        if body.top_logprobs and not body.logprobs:
            raise InvalidField("top_logprobs needs logprobs to be true.", param="top_logprobs")
        ids = await self._tokenizer.chat_ids([_plain(message, at) for at, message in enumerate(body.messages)])
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        limit = body.max_completion_tokens or body.max_tokens
        return self._request(body, (tuple(ids),), limit, logprobs, "messages")

    async def completion(self, body: CompletionBody) -> Request:
        """Raises RequestError of a kind that names the field."""
        self._require_model(body.model)
        if body.echo and body.logprobs is not None:
            raise UnsupportedField("echo together with logprobs is not supported by this engine.", param="echo")
        prompts = await self._prompts(body)
        limit = body.max_tokens or DEFAULT_COMPLETION_TOKENS
        return self._request(body, prompts, limit, body.logprobs, "prompt")

    async def _prompts(self, body: CompletionBody) -> tuple[tuple[int, ...], ...]:
        if body.suffix is not None:
            if not isinstance(body.prompt, str):
                raise InvalidField("suffix needs prompt to be one string.", param="suffix")
            return (tuple(await self._tokenizer.fill_ids(body.prompt, body.suffix)),)
        prompt = body.prompt
        if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int)):
            prompt = [prompt]
        if not isinstance(prompt, list) or not prompt:
            raise InvalidField(
                "prompt must be a string, a list of strings, token ids or a list of them.", param="prompt"
            )
        return tuple([await self._ids(entry) for entry in prompt])

    async def _ids(self, prompt: Any) -> tuple[int, ...]:
        if isinstance(prompt, str):
            ids = await self._tokenizer.encode(prompt)
        else:
            try:
                ids = msgspec.convert(prompt, list[int])
            except msgspec.ValidationError:
                raise InvalidField("prompt: a list must hold only strings or only token ids.", param="prompt") from None
            vocabulary = self._service.model.vocab_size
            if any(not 0 <= id_ < vocabulary for id_ in ids):
                raise InvalidField(f"prompt: token ids lie between 0 and {vocabulary - 1}.", param="prompt")
        if not ids:
            raise InvalidField("prompt is empty: the model needs at least one token to continue.", param="prompt")
        return tuple(ids)

    def _request(
        self,
        body: SamplingFields,
        prompts: tuple[tuple[int, ...], ...],
        max_tokens: int | None,
        logprobs: int | None,
        prompt_field: str,
    ) -> Request:
        longest, context = max(map(len, prompts)), self._service.context_tokens
        if longest + (max_tokens or 1) > context:
            raise ContextTooLong(
                limit_tokens=context,
                prompt_tokens=longest,
                output_tokens=max_tokens or 1,
                param="max_tokens" if longest < context else prompt_field,
            )
        choices = body.n or 1
        if choices * len(prompts) > self._service.config.max_choices:
            raise InvalidField(
                f"n times prompts is {choices * len(prompts)}; at most {self._service.config.max_choices}.", param="n"
            )
        return Request(
            rid=body.rid or uuid.uuid4().hex,
            prompts=prompts,
            sampling=self._sampling(body, max_tokens or context - longest, logprobs),
            choices_per_prompt=choices,
            priority=body.priority or 0,
            cache_salt=body.cache_salt or "",
            speculate=body.speculation is not False,
        )

    def _sampling(self, body: SamplingFields, max_tokens: int, logprobs: int | None) -> Sampling:
        end_ids = frozenset() if body.ignore_eos else self._service.tokenizer.end_ids
        return Sampling(
            max_tokens=max_tokens,
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            top_k=max(body.top_k or 0, 0),
            min_p=body.min_p or 0.0,
            seed=body.seed,
            frequency_penalty=body.frequency_penalty or 0.0,
            presence_penalty=body.presence_penalty or 0.0,
            logit_bias=self._logit_bias(body.logit_bias),
            stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
            stop_ids=end_ids | frozenset(body.stop_token_ids or ()),
            logprobs=logprobs,
        )

    def _logit_bias(self, bias: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
        vocabulary = self._service.model.vocab_size
        pairs: list[tuple[int, float]] = []
        for text, value in (bias or {}).items():
            if not text.isdecimal() or int(text) >= vocabulary:
                raise InvalidField(f"logit_bias: {text!r} is no token id below {vocabulary}.", param="logit_bias")
            pairs.append((int(text), value))
        return tuple(pairs)

    def _require_model(self, name: str) -> None:
        if name != self._service.name:
            raise ModelNotFound(f"This engine serves {self._service.name!r}, not {name!r}.", param="model")


def _plain(message: dict[str, Any], at: int) -> dict[str, Any]:
    """A message whose content is one string; parts of type text are joined."""
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
            return {**message, "content": "".join(texts)}
    raise UnsupportedField(f"messages[{at}].content: only text is supported.", param=f"messages[{at}].content")
