"""Names of the client families by which requests are classified; settings may refer to them."""

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
"""`editor` is an editor without its own entry; `other` is a client that is unknown or sends no name."""

EDITORS: frozenset[ClientFamily] = frozenset(
    {"slipstream-lsp", "tabby-agent", "llama.vscode", "continue", "zed", "editor"}
)
"""Clients in which a person types."""

OTHER: ClientFamily = "other"
