"""The part of a generation request that every OpenAI-compatible engine understands, built from a Generation alone."""

from __future__ import annotations

from typing import Any

from contracts.errors import UnsupportedField
from contracts.generation import ChatPrompt, Generation, Sampling, TextPrompt

JsonObject = dict[str, Any]
CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"


def path_of(generation: Generation) -> str:
    """The endpoint for this kind of prompt."""
    return CHAT_PATH if isinstance(generation.prompt, ChatPrompt) else COMPLETIONS_PATH


def openai_body(generation: Generation, engine_model: str) -> JsonObject:
    """The body without stream options and extras.

    Every sampling value is written out, OpenAI's default where the client gave none: engines fall back on defaults
    of their own. Raises UnsupportedField for prompts of mixed kind.
    """
    prompt, sampling = generation.prompt, generation.sampling
    body: JsonObject = {"model": engine_model, "stream": True}
    if isinstance(prompt, ChatPrompt):
        body |= _chat(prompt, sampling)
    else:
        body |= _completion(prompt, sampling)
    return body | _sampling(sampling)


def _chat(prompt: ChatPrompt, sampling: Sampling) -> JsonObject:
    optional = {
        "tools": prompt.tools or None,
        "tool_choice": prompt.tool_choice,
        "parallel_tool_calls": prompt.parallel_tool_calls,
        "response_format": prompt.response_format,
        "reasoning_effort": prompt.reasoning_effort,
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
    body: JsonObject = {"prompt": prompts[0] if len(prompts) == 1 else prompts, "echo": prompt.echo}
    if prompt.suffix is not None:
        body["suffix"] = prompt.suffix
    if sampling.logprobs is not None:
        body["logprobs"] = sampling.logprobs
    elif sampling.best is not None:
        # what the choices are compared by
        body["logprobs"] = 1
    return body


def _sampling(sampling: Sampling) -> JsonObject:
    body: JsonObject = {
        "max_tokens": sampling.max_tokens,
        "n": sampling.n,
        "temperature": _or(sampling.temperature, 1.0),
        "top_p": _or(sampling.top_p, 1.0),
        "frequency_penalty": _or(sampling.frequency_penalty, 0.0),
        "presence_penalty": _or(sampling.presence_penalty, 0.0),
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = sampling.stop
    if sampling.logit_bias:
        body["logit_bias"] = sampling.logit_bias
    return body


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
