"""What an inference key may be used for."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """One of the doors of the inference API. A key without a list of scopes opens all."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    MODELS = "models"
