"""Conversations as the gateway prepares them, with token ids of our own making instead of a tokenizer's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from contracts.dated_request_id import mint
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, Tier
from contracts.prefix import of_generation
from gateway.prefixes.observer import Observed
from gateway.wire.prepared import Prepared

ACME, OTHER = str(UUID(int=1)), str(UUID(int=2))
PROJECT, KEY = str(UUID(int=3)), str(UUID(int=4))
_clock = itertools.count()


def caller(organization_id: str = ACME) -> Caller:
    return Caller(organization_id, PROJECT, KEY)


def message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def tool(name: str, description: str = "does it") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {}}}


def ids_of(prompt: ChatPrompt) -> list[int]:
    """One token a byte: the system prompt, the tools, the messages, as a model's template has them."""
    leading = [m for m in prompt.messages[:1] if m["role"] == "system"]
    rest = prompt.messages[len(leading) :]
    return list(msgspec.json.encode(leading) + msgspec.json.encode(prompt.tools or ()) + msgspec.json.encode(rest))


def asked(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] = (),
    organization_id: str = ACME,
    model: str = "m",
    at_s: float | None = None,
    arrived_s: float | None = None,
) -> Observed:
    prompt = ChatPrompt(tuple(messages), tuple(tools) or None)
    request_id, ids = mint(arrived_s), ids_of(prompt)
    generation = Generation(
        request_id, caller(organization_id), Tier.CHAT, model, prompt, Sampling(16), cache_salt=organization_id
    )
    prepared = Prepared(generation, len(ids), True, len(ids), chain=of_generation(generation, ids))
    at_s = float(next(_clock)) if at_s is None else at_s
    return Observed(request_id, generation.caller, "/v1/chat/completions", prepared, at_s)
