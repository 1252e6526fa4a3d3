"""The part of a generation request that every OpenAI-compatible engine understands, built from a Generation alone."""

from __future__ import annotations

import re
from typing import Any

from contracts.errors import UnsupportedField
from contracts.generation import ChatPrompt, Generation, Sampling, TextPrompt
from engines.drivers.parameters import CHAT_TEMPLATE_KWARGS, STOP_TOKEN_IDS

JsonObject = dict[str, Any]
CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
GIVEN_OR_THE_ENGINES_OWN = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
"""Fields of `Sampling` that OpenAI's API has under the same name."""
LIKELIEST_TOP_P = 1e-6
"""Sent for a `top_p` of 0, which OpenAI accepts and engines refuse: it leaves only the likeliest token."""
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


def opening_pattern(text: str) -> str:
    """A regular expression for all texts that begin with this one. XGrammar, LLGuidance and Outlines all accept it: it
    has no flags, and only the necessary escapes, because XGrammar logs others."""
    return _SPECIAL.sub(r"\\\g<0>", text) + r"[\s\S]*"


def path_of(generation: Generation) -> str:
    """The endpoint for this kind of prompt."""
    return CHAT_PATH if isinstance(generation.prompt, ChatPrompt) else COMPLETIONS_PATH


def openai_body(generation: Generation, engine_model: str) -> JsonObject:
    """The body without stream options and extras.

    A sampling value that the client did not set is left out, so that the engine's default applies: vLLM and SGLang take
    the model maker's recommendation in `generation_config.json`. Only `max_tokens` is always present, because it is the
    reservation. Raises UnsupportedField for prompts of mixed kinds.
    """
    prompt, sampling = generation.prompt, generation.sampling
    body: JsonObject = {"model": engine_model, "stream": True}
    if isinstance(prompt, ChatPrompt):
        body |= _chat(prompt, sampling)
    else:
        body |= _completion(prompt, sampling)
    body |= _sampling(sampling)
    if sampling.engine_parameters:
        # fields that the gateway itself sets take precedence
        body = {**sampling.engine_parameters, **body}
    return body


def engine_body(generation: Generation, engine_model: str) -> JsonObject:
    """`openai_body` with the extensions that self-hosted engines have under the same names: usage so far with every
    event, ids that end a text, the least number of tokens, and a salt for the prefix cache.

    With several choices, an event counts its own choice only; the last event, which has no choices, counts all.
    """
    body = openai_body(generation, engine_model)
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    if generation.sampling.min_tokens:
        body["min_tokens"] = generation.sampling.min_tokens
    if generation.sampling.stop_ids:
        body[STOP_TOKEN_IDS] = [*generation.sampling.stop_ids, *body.get(STOP_TOKEN_IDS, ())]
    if generation.cache_salt:
        body["cache_salt"] = generation.cache_salt
    return body


def _chat(prompt: ChatPrompt, sampling: Sampling) -> JsonObject:
    optional = {
        "tools": prompt.tools or None,
        "tool_choice": prompt.tool_choice,
        "parallel_tool_calls": prompt.parallel_tool_calls,
        "response_format": prompt.response_format,
        "reasoning_effort": prompt.reasoning_effort,
        CHAT_TEMPLATE_KWARGS: prompt.template_kwargs,
    }
    body: JsonObject = {"messages": prompt.messages}
    body |= {name: value for name, value in optional.items() if value is not None}
    if sampling.logprobs is not None:
        body["logprobs"] = True
        body["top_logprobs"] = sampling.logprobs
    return body


def _completion(prompt: TextPrompt, sampling: Sampling) -> JsonObject:
    prompts = prompt.prompts
    if len({isinstance(entry, str) for entry in prompts}) != 1:
        raise UnsupportedField("Prompts must be all text or all token ids.", param="prompt")
    body: JsonObject = {"prompt": prompts[0] if len(prompts) == 1 else prompts}
    if prompt.echo:
        body["echo"] = True
    if prompt.suffix is not None:
        body["suffix"] = prompt.suffix
    if sampling.logprobs is not None:
        body["logprobs"] = sampling.logprobs
    elif sampling.best is not None:
        # the choices are compared by their log probabilities
        body["logprobs"] = 1
    return body


def _sampling(sampling: Sampling) -> JsonObject:
    body: JsonObject = {"max_tokens": sampling.max_tokens}
    if sampling.n > 1:
        body["n"] = sampling.n
    for name in GIVEN_OR_THE_ENGINES_OWN:
        value = getattr(sampling, name)
        if value is not None:
            body[name] = value
    if sampling.top_p == 0:
        body["top_p"] = LIKELIEST_TOP_P
    if sampling.stop:
        body["stop"] = sampling.stop
    if sampling.logit_bias:
        body["logit_bias"] = sampling.logit_bias
    return body
