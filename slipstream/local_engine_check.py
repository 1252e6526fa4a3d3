"""Checks whether the embedded engines that `up` starts fit on this machine, each and all together. A refusal shows its
arithmetic.

The figures are the minimum: an engine checks more closely at its own start, and may still refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from contracts.errors import ConfigError
from engines.embedded.combinations import require_possible, with_quantization
from engines.embedded.config import EngineConfig
from engines.performance.model_folder import read_shape
from slipstream.local_engines import ANY_PORT, Engine
from slipstream.machine import Machine, this_machine

GIB = 1024**3


class Footprint(msgspec.Struct, frozen=True):
    """The minimum memory of an engine."""

    engine: Engine
    on_gpu: bool
    weights_bytes: int
    token_bytes: int
    """Bytes of the keys and values of one token."""

    @property
    def kv_bytes(self) -> int:
        """The budget as set, or else the engine's smallest choice: room for one request of the longest context."""
        config = self.engine.config
        if config.kv.budget_bytes is not None:
            return config.kv.budget_bytes
        return -(-config.context_tokens // config.kv.page_tokens) * config.kv.page_tokens * self.token_bytes

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes

    def __str__(self) -> str:
        return f"{_gib(self.weights_bytes)} weights + {_gib(self.kv_bytes)} KV"


def check(engines: Sequence[Engine], machine: Machine | None = None) -> list[Footprint]:
    """The footprint of each engine. machine: None for this machine, inspected as far as the engines need it.

    Raises ConfigError if one of them cannot run, or if not all can run together.
    """
    if machine is None:
        machine = this_machine(with_gpu=any(engine.config.device != "cpu" for engine in engines))
    for engine in engines:
        _require_device(engine, machine)
    needed = [footprint(engine, machine) for engine in engines]
    for each in needed:
        require_possible(each.engine.config, on_gpu=each.on_gpu, trail=each.engine.trail)
        _require_context(each)
    _require_memory([each for each in needed if not each.on_gpu], machine.memory_bytes, "this machine")
    _require_memory([each for each in needed if each.on_gpu], machine.gpu_memory_bytes, "its GPU")
    _require_endpoints_apart(engines)
    return needed


def crowded(engines: Sequence[Engine], machine: Machine | None = None) -> str | None:
    """The warning if the engines have more threads than the machine has cores, else None. They run, but more slowly
    than with fewer threads."""
    cores = (machine or this_machine(with_gpu=False)).cores
    threads = sum(engine.config.threads for engine in engines if engine.config.threads != "auto")
    if threads <= cores:
        return None
    each = " + ".join(f"{engine.config.threads} of {engine.name}" for engine in engines)
    return (
        f"engines compute with {threads} threads ({each}) and there are {cores} cores: they wait for each other, and "
        "gateways for them; lower threads, or start fewer engines"
    )


def footprint(engine: Engine, machine: Machine) -> Footprint:
    """The engine's minimum memory. Raises ConfigError for a model of unknown shape."""
    config = engine.config
    try:
        shape = read_shape(engine.folder.path)
    except ConfigError as error:
        raise ConfigError(f"{engine.trail}.model: {error.message}", param=f"{engine.trail}.model") from None
    on_gpu = config.device == "cuda" or (config.device == "auto" and machine.gpu_memory_bytes > 0)
    config = with_quantization(config, on_gpu=on_gpu)
    number_bytes = _number_bytes(config, engine.folder.dtype, native=on_gpu or machine.native_bfloat16)
    weight_bytes = 1 if config.quantization == "int8" else number_bytes
    return Footprint(
        engine,
        on_gpu,
        weights_bytes=int(shape.parameters) * weight_bytes,
        token_bytes=config.kv.token_bytes(2 * shape.layers * shape.kv_heads, shape.head_size, number_bytes),
    )


def _number_bytes(config: EngineConfig, stored: str, *, native: bool) -> int:
    """Bytes of an unrounded weight and of a cached number. native: the device computes bfloat16 natively."""
    dtype = "bfloat16" if config.quantization == "int8" else config.dtype
    if dtype == "auto":
        dtype = "bfloat16" if native and stored == "bfloat16" else "float32"
    return 2 if dtype == "bfloat16" else 4


def _require_device(engine: Engine, machine: Machine) -> None:
    if engine.config.device == "cuda" and not machine.gpu_memory_bytes:
        field = f"{engine.trail}.device"
        raise ConfigError(
            f"{field}: cuda is set, but torch finds no CUDA device; allowed: cpu, cuda, auto", param=field
        )


def _require_context(needed: Footprint) -> None:
    """Refuse an engine whose key and value memory, in whole pages, cannot hold one request of the longest context."""
    config, token_bytes = needed.engine.config, needed.token_bytes
    page_bytes = token_bytes * config.kv.page_tokens
    held = needed.kv_bytes // page_bytes * config.kv.page_tokens
    if held >= config.context_tokens:
        return
    field = f"{needed.engine.trail}.kv.budget_bytes"
    least = -(-config.context_tokens // config.kv.page_tokens) * page_bytes
    raise ConfigError(
        f"{field}: {needed.kv_bytes:,} bytes ÷ {token_bytes:,} bytes a token hold {held:,} tokens of "
        f"{needed.engine.folder.name}, and one request may need {config.context_tokens:,}; give at least {least}, or a "
        f"context of {held:,} at most ({needed.engine.trail}.context_tokens)",
        param=field,
    )


def _require_memory(needed: Sequence[Footprint], memory_bytes: int, where: str) -> None:
    total = sum(each.total_bytes for each in needed)
    if total <= memory_bytes:
        return
    largest = max(needed, key=lambda each: each.total_bytes).engine
    parts = "; ".join(f"{each.engine.name}: {each}" for each in needed)
    raise ConfigError(
        f"{largest.trail}: the embedded engines together need {_gib(total)} ({parts}), and {where} has "
        f"{_gib(memory_bytes)}; lower kv.budget_bytes, set quantization = 'int8', or start fewer of them",
        param=largest.trail,
    )


def _require_endpoints_apart(engines: Sequence[Engine]) -> None:
    taken: dict[str, str] = {}
    for engine in engines:
        for field, endpoint in _endpoints(engine):
            other = taken.setdefault(endpoint, engine.name)
            if other != engine.name:
                name = f"{engine.trail}.kv_events.{field}"
                raise ConfigError(
                    f"{name}: {endpoint} would be that of {other} and of {engine.name}, and only one can listen there; "
                    f"write tcp://127.0.0.1:{ANY_PORT}, and `up` chooses a port for each",
                    param=name,
                )


def _endpoints(engine: Engine) -> Iterator[tuple[str, str]]:
    """The endpoints with a fixed port."""
    events = engine.config.kv_events
    for field, endpoint in (("endpoint", events.endpoint), ("replay_endpoint", events.replay_endpoint)):
        if endpoint and not endpoint.endswith(f":{ANY_PORT}"):
            yield field, endpoint


def _gib(size: int) -> str:
    return f"{size / GIB:,.2f} GiB"
