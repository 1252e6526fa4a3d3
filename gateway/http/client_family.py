"""Classifies a client by its headers as one of a few names, never as a header's text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import get_args

from contracts.client_family import OTHER, ClientFamily

NAMED_BY = b"x-slipstream-client"
"""Header by which a client's configuration names it: one of `CLIENTS`. Other names are ignored."""
FAMILIES: tuple[tuple[bytes, ClientFamily], ...] = (
    (b"slipstream-lsp", "slipstream-lsp"),
    (b"tabby-agent", "tabby-agent"),
    (b"zed/", "zed"),
    (b"openai/python", "openai-python"),
    (b"openai/js", "openai-node"),
    (b"curl/", "curl"),
)
"""Parts of a `User-Agent`, in any case, with the family's name. The first match counts. llama.vim uses curl."""
UNNAMED: dict[tuple[str, bytes], ClientFamily] = {
    ("tabby", b""): "tabby-agent",
    ("infill", b"axios/"): "llama.vscode",
}
"""Families by endpoint and prefix of an anonymous `User-Agent`: both clients send that of their HTTP library."""
CLIENTS: tuple[ClientFamily, ...] = get_args(ClientFamily)
"""All names."""
BY_NAME = {name.encode(): name for name in CLIENTS}
MAX_COMPARED = 512


def client_family(headers: Mapping[bytes, bytes], endpoint: str = "") -> ClientFamily:
    """The client's family; `other` if it is unknown. headers: by name in lower case. endpoint: its name in metrics."""
    named = BY_NAME.get(headers.get(NAMED_BY, b"").strip().lower())
    if named is not None:
        return named
    if endpoint == "fim" and b"x-api-key" in headers and b"authorization" in headers:
        # Continue's library sends `node-fetch`, like many others, but also its key twice; Mistral's clients do not
        return "continue"
    return _family(headers.get(b"user-agent", b"")[:MAX_COMPARED], endpoint)


@lru_cache(maxsize=1_024)
def _family(user_agent: bytes, endpoint: str) -> ClientFamily:
    user_agent = user_agent.lower()
    for needle, name in FAMILIES:
        if needle in user_agent:
            return name
    return next(
        (name for (api, start), name in UNNAMED.items() if api == endpoint and user_agent.startswith(start)),
        OTHER,
    )
