"""What kind of client sends a request, by what it says of itself: one of a few names, never a header itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import get_args

from contracts.client_family import OTHER, ClientFamily

NAMED_BY = b"x-slipstream-client"
"""A request's header in which who configures a client says what it is: a name of `CLIENTS`. Other names say nothing."""
FAMILIES: tuple[tuple[bytes, ClientFamily], ...] = (
    (b"slipstream-lsp", "slipstream-lsp"),
    (b"tabby-agent", "tabby-agent"),
    (b"zed/", "zed"),
    (b"openai/python", "openai-python"),
    (b"openai/js", "openai-node"),
    (b"curl/", "curl"),
)
"""What a `User-Agent` holds in any case, and the family's name; the first that fits. llama.vim sends its requests by
curl."""
UNNAMED: dict[tuple[str, bytes], ClientFamily] = {
    ("tabby", b""): "tabby-agent",
    ("infill", b"axios/"): "llama.vscode",
}
"""Whose requests to an endpoint are with such a `User-Agent` (how it begins) that names nobody: tabby-agent and
llama.vscode send the one of their HTTP library."""
CLIENTS: tuple[ClientFamily, ...] = get_args(ClientFamily)
"""All names there are."""
BY_NAME = {name.encode(): name for name in CLIENTS}
MOST_COMPARED = 512


def client_family(headers: Mapping[bytes, bytes], endpoint: str = "") -> ClientFamily:
    """The client's family; `other` for one that is unknown or says nothing. headers: by their names in lower case.
    endpoint: the one that it asks, by its name in metrics."""
    told = BY_NAME.get(headers.get(NAMED_BY, b"").strip().lower())
    if told is not None:
        return told
    if endpoint == "fim" and b"x-api-key" in headers and b"authorization" in headers:
        # Continue's library says `node-fetch`, as much else does, but sends its key twice; Mistral's clients do not
        return "continue"
    return _family(headers.get(b"user-agent", b"")[:MOST_COMPARED], endpoint)


@lru_cache(maxsize=1_024)
def _family(told: bytes, endpoint: str) -> ClientFamily:
    told = told.lower()
    for needle, name in FAMILIES:
        if needle in told:
            return name
    return next(
        (name for (asked, start), name in UNNAMED.items() if asked == endpoint and told.startswith(start)), OTHER
    )
