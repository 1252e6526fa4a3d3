"""Names of the kinds of clients that send requests, as requests are told apart by and settings may name them."""

from __future__ import annotations

from typing import Literal

ClientFamily = Literal[
    "slipstream-lsp",
    "tabby-agent",
    "zed",
    "openai-python",
    "openai-node",
    "curl",
    "llama.vscode",
    "continue",
    "editor",
    "other",
]
"""`editor` is one that has no name of its own here; `other` one that is unknown or says nothing."""

EDITORS: frozenset[ClientFamily] = frozenset(
    {"slipstream-lsp", "tabby-agent", "llama.vscode", "continue", "zed", "editor"}
)
"""Clients in which somebody types."""

OTHER: ClientFamily = "other"
