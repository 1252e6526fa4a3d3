"""Chooses the temperature and top_p of a request that gives none: from the settings, else, like vLLM and SGLang, from
the model's `generation_config.json`, else plain sampling.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig

FILE = "generation_config.json"


class SamplingDefaults(msgspec.Struct, frozen=True):
    """temperature: 0 always picks the likeliest token. top_p: 1 drops no token."""

    temperature: float = 1.0
    top_p: float = 1.0
    frequency_penalty: float = 0.0

    def frequency_penalty_of(self, given: float | None, temperature: float | None) -> float:
        """The penalty of a request with these two values. A request with a temperature (an eval) gets no default."""
        if given is not None:
            return given
        return self.frequency_penalty if temperature is None else 0.0


class _Own(msgspec.Struct):
    """The fields of the model's file that are used here."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None


def sampling_defaults(config: EngineConfig) -> SamplingDefaults:
    """The defaults of a deployment. Raises ConfigError for a `generation_config.json` that cannot be read."""
    own = _own(Path(config.model) / FILE)
    temperature = own.temperature if config.temperature is None else config.temperature
    top_p = own.top_p if config.top_p is None else config.top_p
    return SamplingDefaults(
        1.0 if temperature is None else temperature,
        1.0 if top_p is None else top_p,
        config.frequency_penalty or 0.0,
    )


def _own(file: Path) -> _Own:
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return _Own()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    try:
        return msgspec.json.decode(text, type=_Own)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file}: {error}; correct it, or set engine.temperature and engine.top_p") from None
