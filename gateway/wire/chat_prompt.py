"""Counts a conversation as the engine will render it, whatever its wire format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from contracts.errors import WrongEndpoint
from contracts.generation import ChatPrompt
from contracts.prefix import holds_more_than_text
from engines.drivers.base import Capabilities
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.control_tokens import require_plain
from gateway.wire.prepared import Counted, Target, estimate


async def counted_chat(prompt: ChatPrompt, target: Target, organization_id: str) -> Counted:
    """Raises a RequestError that names the field, WrongEndpoint for a model without a chat template."""
    ids = await _ids(prompt, target, organization_id)
    if target.tokenizer is None or ids is None:
        json_bytes = _json_bytes(prompt)
        tokens = estimate(json_bytes)
        return Counted(prompt, tokens, tokens, False, max(tokens, target.model.context_tokens, json_bytes), None)
    tokens = len(ids)
    exact = not any(map(holds_more_than_text, prompt.messages))
    # A template, an image or an engine's handling of tools may add tokens that are unknown here, but no engine takes
    # more than the model's context.
    bound = max(tokens, target.model.context_tokens)
    if exact and _renders_all(prompt, target.tokenizer.tokenizer, target.capabilities):
        bound = tokens
    return Counted(prompt, tokens, tokens, exact, bound, ids)


def _tools_in_prompt(prompt: ChatPrompt, capabilities: Capabilities) -> tuple[dict[str, Any], ...] | None:
    tools, choice = prompt.tools, prompt.tool_choice
    if tools is None or capabilities.tools_in_prompt == "all":
        return tools
    if isinstance(choice, dict) and capabilities.tools_in_prompt == "chosen":
        return tuple(tool for tool in tools if tool["function"]["name"] == choice["function"]["name"])
    return None if choice == "none" else tools


def _renders_all(prompt: ChatPrompt, tokenizer: Tokenizer, capabilities: Capabilities) -> bool:
    """Whether the conversation as counted holds all that the engine may put into its prompt.

    The embedded engine renders the same template from the same folder. Others differ for tools that the template does
    not render, and for a schema or a reasoning effort, which the count leaves out.
    """
    if capabilities.literal_text:
        return True
    if prompt.reasoning_effort is not None or prompt.response_format is not None:
        return False
    return not prompt.tools or "tools" in (tokenizer.tool_template_source or "")


async def _ids(prompt: ChatPrompt, target: Target, organization_id: str) -> Sequence[int] | None:
    """The conversation's token ids; None without a tokenizer."""
    if target.tokenizer is None:
        return None
    tokenizer = target.tokenizer.tokenizer
    if not tokenizer.has_chat_template:
        raise WrongEndpoint(f"'{target.model.name}' is not a chat model; use /v1/completions.", param="model")

    messages, tools = prompt.messages, _tools_in_prompt(prompt, target.capabilities)
    if prompt.template_kwargs is not None:
        require_plain(tokenizer, prompt.template_kwargs, "chat_template_kwargs")

    def require_plain_messages(parsed: Sequence[dict[str, Any]]) -> None:
        if not tokenizer.may_spell_control((messages, parsed, tools)):
            return
        # check the values as templates see them, after JSON's escapes are undone
        for index, (message, seen) in enumerate(zip(messages, parsed, strict=True)):
            for name, value in message.items():
                both = value if seen[name] is value else (value, seen[name])
                require_plain(tokenizer, both, f"messages[{index + prompt.merged if index else 0}].{name}")
        require_plain(tokenizer, tools, "tools")

    check = None if target.capabilities.literal_text else require_plain_messages
    return await target.tokenizer.chat_ids(
        messages, tools or None, target.model.context_tokens, organization_id, prompt.template_kwargs, check
    )


def _json_bytes(prompt: ChatPrompt) -> int:
    return len(msgspec.json.encode(prompt.messages)) + len(msgspec.json.encode(prompt.tools or ()))
