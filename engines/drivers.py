"""The drivers by name, as a pool's `driver` setting gives it."""

from __future__ import annotations

import difflib

from contracts.errors import ConfigError
from engines.base import Driver
from engines.embedded_dialect import EmbeddedDriver
from engines.openai import OpenAIDriver
from engines.sglang import SGLangDriver

_DRIVERS: dict[str, Driver] = {driver.name: driver for driver in (EmbeddedDriver(), SGLangDriver(), OpenAIDriver())}


def get(name: str) -> Driver:
    """The driver called `name`. Raises ConfigError naming those there are."""
    driver = _DRIVERS.get(name)
    if driver is None:
        nearest = difflib.get_close_matches(name, _DRIVERS, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(f"driver: no driver named {name!r}; {hint}drivers: {', '.join(names())}")
    return driver


def names() -> tuple[str, ...]:
    """Every driver's name."""
    return tuple(sorted(_DRIVERS))
