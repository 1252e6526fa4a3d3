"""Asks for a request to be prepared as the gateway does; what differs between engines is asked of the real drivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from contracts.desired_state import Model
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Caller, ChatPrompt, TextPrompt, Tier
from engines.drivers import registry as drivers
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.openai.decode import Decoder
from gateway.wire.openai.prepare import prepare_chat, prepare_completion
from gateway.wire.prepared import Prepared, Target

MODELS = Path(__file__).parents[4] / "models"
CALLER = Caller("organization", "project", "key")
DECODER = Decoder()
HI = [{"role": "user", "content": "hi"}]


def cost_tokens(prepared: Prepared) -> int:
    """What is reserved: all prompts, and the output limit for every choice."""
    return prepared.prompt_tokens + prepared.generation.choices * prepared.generation.sampling.max_tokens


def target(tokenizer: Tokenizer | None, driver: str = "embedded", *, fim: Any = (), **model: Any) -> Target:
    """Without token healing, which has tests of its own: a prompt is what the client wrote. Nor is an answer judged."""
    fields: dict[str, Any] = {
        "name": "m",
        "tier": Tier.CHAT,
        "pool": "p",
        "context_tokens": 100,
        "default_max_tokens": 20,
    }
    fields |= {"fim": FillInTheMiddle(**{"healing": False, "min_confidence": 0.0, **dict(fim)}), **model}
    off_loop = None if tokenizer is None else OffLoopTokenizer(tokenizer)
    return Target(Model(**fields), drivers.get(driver).capabilities, off_loop)


async def chat(where: Target, messages: Any = HI, **fields: Any) -> Prepared:
    asked = DECODER.chat(msgspec.json.encode({"model": "m", "messages": messages, **fields}))
    return await prepare_chat(asked, "req_1", CALLER, "salt", where)


async def complete(where: Target, prompt: Any = "x = ", **fields: Any) -> Prepared:
    asked = DECODER.completion(msgspec.json.encode({"model": "m", "prompt": prompt, **fields}))
    return await prepare_completion(asked, "req_1", CALLER, "salt", where)


def prompts_of(prepared: Prepared) -> TextPrompt:
    assert isinstance(prepared.generation.prompt, TextPrompt)
    return prepared.generation.prompt


def messages_of(prepared: Prepared) -> tuple[dict[str, Any], ...]:
    assert isinstance(prepared.generation.prompt, ChatPrompt)
    return prepared.generation.prompt.messages


def call_with(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call]}
