"""Usage in OpenAI's format, for OpenAI's and similar APIs."""

from __future__ import annotations

from typing import Any

from contracts.usage import Usage


def usage_json(usage: Usage) -> dict[str, Any]:
    """Usage as OpenAI's object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
