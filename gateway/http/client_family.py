"""What kind of client sends a request, from its `User-Agent`: one of a few names, never the header itself. Pure."""

from __future__ import annotations

from functools import lru_cache

FAMILIES: tuple[tuple[bytes, str], ...] = (
    (b"slipstream-lsp", "slipstream-lsp"),
    (b"tabby-agent", "tabby-agent"),
    (b"llama.vscode", "llama.vscode"),
    (b"llama-vscode", "llama.vscode"),
    (b"continue", "continue"),
    (b"zed/", "zed"),
    (b"openai/python", "openai-python"),
    (b"openai/js", "openai-node"),
    (b"curl/", "curl"),
)
"""What a header holds in any case, and the family's name; the first that fits. llama.vim sends its requests by curl."""
UNNAMED = {"tabby": "tabby-agent"}
"""Whose an endpoint is where the header does not tell: tabby-agent sends the one of its HTTP library."""
OTHER = "other"
EDITORS = frozenset({"slipstream-lsp", "tabby-agent", "llama.vscode", "continue", "zed"})
"""Clients in which somebody types."""
CLIENTS = (*dict.fromkeys(name for _, name in FAMILIES), OTHER)
"""All names there are."""
MOST_COMPARED = 512


def client_family(user_agent: bytes, endpoint: str = "") -> str:
    """The client's family; `other` for one that is unknown or says nothing. user_agent: the header's value. endpoint:
    the one that it asks, by its name in metrics."""
    family = _family(user_agent[:MOST_COMPARED])
    return UNNAMED.get(endpoint, family) if family == OTHER else family


@lru_cache(maxsize=1_024)
def _family(told: bytes) -> str:
    told = told.lower()
    return next((name for needle, name in FAMILIES if needle in told), OTHER)
