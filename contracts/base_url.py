"""The base URL of an OpenAI-compatible API, which people write with and without `/v1`."""

from __future__ import annotations


def base_url(url: str) -> str:
    """The URL without `/v1` and a slash at its end."""
    return url.rstrip("/").removesuffix("/v1")
