"""Finds a driver by the name in a pool's `driver` setting, or by the pool, with the pool's options."""

from __future__ import annotations

import copy
import difflib

import msgspec

from contracts.desired_state import Pool
from contracts.errors import ConfigError
from engines.drivers.base import Driver
from engines.drivers.embedded import EmbeddedDriver
from engines.drivers.llama_cpp import LlamaCppDriver
from engines.drivers.openai import OpenAIDriver
from engines.drivers.parameters import with_passed
from engines.drivers.sglang import SGLangDriver
from engines.drivers.tensorrt_llm import TensorRTLLMDriver
from engines.drivers.vllm import VLLMDriver

_DRIVERS: dict[str, Driver] = {
    driver.name: driver
    for driver in (
        EmbeddedDriver(),
        SGLangDriver(),
        TensorRTLLMDriver(),
        VLLMDriver(),
        LlamaCppDriver(),
        OpenAIDriver(),
    )
}


def get(name: str, field: str = "driver") -> Driver:
    """The driver called `name`, without a pool's options, which is enough for health, load and crash recovery.

    Raises ConfigError, which names `field` and the existing drivers.
    """
    driver = _DRIVERS.get(name)
    if driver is None:
        nearest = difflib.get_close_matches(name, _DRIVERS, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(f"{field}: no driver named {name!r}; {hint}drivers: {', '.join(names())}", param=field)
    return driver


def of_pool(pool: Pool) -> Driver:
    """The driver of a pool's engines, with the pool's options.

    Raises ConfigError for an unknown name.
    """
    driver = _with_options(pool)
    if not pool.engine_parameters:
        return driver
    driver = copy.copy(driver)
    own = driver.capabilities
    driver.capabilities = msgspec.structs.replace(own, parameters=with_passed(own.parameters, pool.engine_parameters))
    return driver


def _with_options(pool: Pool) -> Driver:
    if pool.driver == OpenAIDriver.name:
        return OpenAIDriver(
            continuous_usage_stats=pool.continuous_usage_stats,
            cache_salt=pool.cache_salt,
            max_completion_tokens=pool.max_completion_tokens,
        )
    if pool.driver == TensorRTLLMDriver.name:
        return TensorRTLLMDriver(request_priorities=pool.request_priorities)
    if pool.driver == VLLMDriver.name:
        return VLLMDriver(abort_by_id=pool.abort_by_id)
    return get(pool.driver, f"pools.{pool.name}.driver")


def names() -> tuple[str, ...]:
    """Every driver's name."""
    return tuple(sorted(_DRIVERS))
