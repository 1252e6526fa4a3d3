"""Reads from a model's folder the longest context that it was made for. Beyond it, engines refuse to start, or continue
with positions that the model has never seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError
from tools.launch.config import LaunchConfig

STRETCHED_ALREADY = ("yarn", "llama3", "longrope", "su", "mrope")
"""Kinds of scaling that start from `original_max_position_embeddings`; `max_position_embeddings` may be the stretched
context. Other kinds stretch `max_position_embeddings` itself."""


class ContextBeyondModel(ConfigError):
    """The settings request a longer context than the model was made for."""


class _Config(msgspec.Struct, frozen=True):
    max_position_embeddings: int | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    """The name of `rope_scaling` in newer folders."""


def longest_context(launch: LaunchConfig) -> int:
    """Tokens, with scaling, from the model's folder or the folder that `shape` names; 0 if neither is on this machine
    or it does not state the length. If engines count differently, it is the longer count. Raises ConfigError."""
    file = _file(launch)
    return 0 if file is None else _read(file)


def require_context(launch: LaunchConfig, context_tokens: int, setting: str) -> None:
    """setting: the name of the setting of `context_tokens`. Raises ContextBeyondModel, and ConfigError for a file that
    cannot be read."""
    longest = longest_context(launch)
    if 0 < longest < context_tokens:
        raise ContextBeyondModel(
            f"{setting}: {context_tokens:,}, and the model was made for {longest:,} tokens, as {_file(launch)} says; "
            f"set at most {longest:,}, or write rope_scaling into that file if it is to be stretched",
            param=setting,
        )


def _file(launch: LaunchConfig) -> Path | None:
    files = (Path(folder) / "config.json" for folder in (launch.model, launch.shape) if folder)
    return next((file for file in files if file.is_file()), None)


def _read(file: Path) -> int:
    try:
        config = msgspec.json.decode(file.read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}", param="model") from error
    made_for, scaling = config.max_position_embeddings or 0, config.rope_scaling or config.rope_parameters or {}
    factor = scaling.get("factor", 1.0)
    if not isinstance(factor, int | float):
        return 0  # the length is unknown
    original = scaling.get("original_max_position_embeddings")
    kind = scaling.get("rope_type") or scaling.get("type")
    begins_at = original if kind in STRETCHED_ALREADY and isinstance(original, int) else made_for
    return max(made_for, int(begins_at * factor))
