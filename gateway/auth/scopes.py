"""What an inference key may be used for."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """One of the doors of the inference API. A key without a list of scopes opens all but `evals`."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    MODELS = "models"
    EVALS = "evals"
    """To ask for the deployment itself, on any pool, behind everybody else and on no bill; only keys of its internal
    organization have it."""
