"""The options of a pool that only some drivers have, and their refusal for other drivers. Pure."""

from __future__ import annotations

from typing import NamedTuple

from contracts.desired_state import Pool
from contracts.errors import ConfigError
from engines.drivers.embedded import EmbeddedDriver
from engines.drivers.openai import OpenAIDriver
from engines.drivers.sglang import SGLangDriver
from engines.drivers.tensorrt_llm import TensorRTLLMDriver
from engines.drivers.vllm import VLLMDriver


class DriverOption(NamedTuple):
    """A pool option that only some drivers have, and the error for other drivers."""

    name: str
    drivers: tuple[str, ...]
    otherwise: str


_OTHERS = "has it always or never, so leave it out"
DRIVER_OPTIONS = (
    DriverOption(
        "max_adapters",
        (EmbeddedDriver.name, SGLangDriver.name, VLLMDriver.name),
        "loads no adapters, so it must be 0",
    ),
    DriverOption("continuous_usage_stats", (OpenAIDriver.name,), _OTHERS),
    DriverOption("cache_salt", (OpenAIDriver.name,), _OTHERS),
    DriverOption("max_completion_tokens", (OpenAIDriver.name,), "takes max_tokens, so leave it out"),
    DriverOption("request_priorities", (TensorRTLLMDriver.name,), "has no such option, so leave it out"),
    DriverOption("abort_by_id", (VLLMDriver.name,), "has no such option, so leave it out"),
)
"""Options that `registry.of_pool` reads for some drivers only: an option without effect is refused."""


def check_options(pool: Pool) -> None:
    """Raise ConfigError for an option that the pool's dialect does not have."""
    for option in DRIVER_OPTIONS:
        _check_option(pool, option)


def check_adapters(pool: Pool) -> None:
    """Raise ConfigError for a pool with adapters whose dialect cannot load them."""
    _check_option(pool, next(option for option in DRIVER_OPTIONS if option.name == "max_adapters"))


def _check_option(pool: Pool, option: DriverOption) -> None:
    value = getattr(pool, option.name)
    if value and pool.driver not in option.drivers:
        field = f"pools.{pool.name}.{option.name}"
        shown = str(value).lower() if isinstance(value, bool) else value
        raise ConfigError(
            f"{field}: {shown}; the driver {pool.driver} {option.otherwise} (for driver {' or '.join(option.drivers)})",
            param=field,
        )
