"""Names of the kinds of clients, by which requests are classified and which settings may name."""

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
"""`editor` is one without a name of its own here; `other` is unknown or sends no name."""

EDITORS: frozenset[ClientFamily] = frozenset(
    {"slipstream-lsp", "tabby-agent", "llama.vscode", "continue", "zed", "editor"}
)
"""Clients in which a person types."""

OTHER: ClientFamily = "other"
