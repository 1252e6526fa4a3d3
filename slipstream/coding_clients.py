"""Coding agents that `slipstream run` starts, with the environment and flags that direct each to a gateway.

It writes no file of the user's. The key is only in the environment: the process list would show a flag. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

KEY_VARIABLE = "SLIPSTREAM_API_KEY"
USUAL_OUTPUT_TOKENS = 32_000
"""Claude Code's default; the prompt needs the rest of the context."""
OUTPUT_SHARE = 4


class Served(msgspec.Struct, frozen=True):
    """The gateway and model that the client uses. url: the gateway's, without `/v1`."""

    url: str
    key: str
    model: str
    context_tokens: int


class CodingClient(msgspec.Struct, frozen=True):
    """program: its name in the shell. install: the command that installs it. path: its API's. without: variables that
    would override `environment`. least_tokens: the context below which its instructions and tools leave little room."""

    program: str
    install: str
    path: str
    environment: Callable[[Served], dict[str, str]]
    arguments: Callable[[Served], list[str]] = lambda _: []
    without: tuple[str, ...] = ()
    least_tokens: int = 8_192


def _claude_environment(served: Served) -> dict[str, str]:
    output_tokens = min(USUAL_OUTPUT_TOKENS, max(served.context_tokens // OUTPUT_SHARE, 1))
    sizes = (f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU"))
    models = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL", *sizes)
    return {
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_AUTH_TOKEN": served.key,
        **dict.fromkeys(models, served.model),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(output_tokens),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _codex_arguments(served: Served) -> list[str]:
    provider = "model_providers.slipstream"
    settings: dict[str, object] = {
        "model_provider": "slipstream",
        f"{provider}.name": "Slipstream",
        f"{provider}.base_url": f"{served.url}/v1",
        f"{provider}.env_key": KEY_VARIABLE,
        f"{provider}.wire_api": "responses",
        "model_context_window": served.context_tokens,
        "web_search": "disabled",
    }
    # JSON's strings and numbers are valid TOML.
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={_json(value)}")]
    return [*options, "-m", served.model]


def _opencode_environment(served: Served) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Slipstream",
        "options": {"baseURL": f"{served.url}/v1", "apiKey": f"{{env:{KEY_VARIABLE}}}"},
        "models": {
            served.model: {
                "name": served.model,
                "limit": {"context": served.context_tokens, "output": max(served.context_tokens // OUTPUT_SHARE, 1)},
            }
        },
    }
    name = f"slipstream/{served.model}"
    config = {"provider": {"slipstream": provider}, "model": name, "small_model": name}
    return {"OPENCODE_CONFIG_CONTENT": _json(config), KEY_VARIABLE: served.key}


def _aider_arguments(served: Served) -> list[str]:
    name = f"openai/{served.model}"
    return ["--model", name, "--weak-model", name, "--no-show-model-warnings", "--no-check-update"]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


CLIENTS: Mapping[str, CodingClient] = MappingProxyType({
    "claude": CodingClient(
        "claude",
        "npm install -g @anthropic-ai/claude-code",
        "/v1/messages",
        _claude_environment,
        without=("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
        least_tokens=32_768,
    ),
    "codex": CodingClient(
        "codex",
        "npm install -g @openai/codex",
        "/v1/responses",
        lambda served: {KEY_VARIABLE: served.key},
        _codex_arguments,
        least_tokens=16_384,
    ),
    "opencode": CodingClient(
        "opencode", "npm install -g opencode-ai", "/v1/chat/completions", _opencode_environment
    ),
    "aider": CodingClient(
        "aider",
        "python -m pip install aider-install && aider-install",
        "/v1/chat/completions",
        lambda served: {"OPENAI_API_BASE": f"{served.url}/v1", "OPENAI_API_KEY": served.key},
        _aider_arguments,
    ),
})  # fmt: skip
"""Clients by their names on the command line."""


def environment_of(client: CodingClient, served: Served, own: Mapping[str, str]) -> dict[str, str]:
    """The client's whole environment. own: the shell's."""
    inherited = {name: value for name, value in own.items() if name not in client.without}
    return inherited | client.environment(served)
