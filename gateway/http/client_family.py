"""Classifies a client by its headers: one of a few names, never a header itself. Pure."""

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
"""Part of a `User-Agent`, in any case, and the family's name; the first match counts. llama.vim sends its requests by
curl."""
UNNAMED: dict[tuple[str, bytes], ClientFamily] = {
    ("tabby", b""): "tabby-agent",
    ("infill", b"axios/"): "llama.vscode",
}
"""Families by endpoint and by the prefix of an anonymous `User-Agent`: tabby-agent and llama.vscode send that of their
HTTP library."""
CLIENTS: tuple[ClientFamily, ...] = get_args(ClientFamily)
"""All names."""
BY_NAME = {name.encode(): name for name in CLIENTS}
MAX_COMPARED = 512


def client_family(headers: Mapping[bytes, bytes], endpoint: str = "") -> ClientFamily:
    """The client's family; `other` for an unknown client. headers: by their names in lower case. endpoint: its name in
    metrics."""
    told = BY_NAME.get(headers.get(NAMED_BY, b"").strip().lower())
    if told is not None:
        return told
    if endpoint == "fim" and b"x-api-key" in headers and b"authorization" in headers:
        # Continue's library says `node-fetch`, as much else does, but sends its key twice; Mistral's clients do not
        return "continue"
    return _family(headers.get(b"user-agent", b"")[:MAX_COMPARED], endpoint)


@lru_cache(maxsize=1_024)
def _family(told: bytes, endpoint: str) -> ClientFamily:
    told = told.lower()
    for needle, name in FAMILIES:
        if needle in told:
            return name
    return next(
        (name for (asked, start), name in UNNAMED.items() if asked == endpoint and told.startswith(start)), OTHER
    )
