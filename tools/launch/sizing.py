"""Computes the numbers that one replica is launched with, in any dialect, each with its arithmetic.

`engines.performance.fit` refuses weights that do not fit, tensor parallelism across machines, and a context beyond the
memory for keys and values.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from engines.performance.catalog import GPUS, MODELS
from engines.performance.fit import require_fit
from engines.performance.hardware import Gpu
from engines.performance.model_folder import read_shape
from engines.performance.model_shape import ModelShape
from engines.performance.precision import Precision
from engines.performance.roofline import Node, Roofline
from tools.launch.adapter_memory import adapter_bytes
from tools.launch.checkpoint import PLAIN, Checkpoint, read_checkpoint
from tools.launch.config import LaunchConfig, LaunchSpeculation
from tools.launch.draft_head import HEAD_BYTES, head_parameters
from tools.launch.drafting import Drafting
from tools.launch.spec import Reasoned

HOPPER = ("H100", "H200")
SET = "as set"
ROUNDED = 0.01
"""Relative tolerance between the parameters of a modelled shape, a rounded number, and those of its folder."""
MAX_RUNNING = 256
"""Limit without a workload: a step of more streams is compute-bound on every modelled GPU."""


class Drafts(msgspec.Struct, frozen=True):
    """How a replica drafts."""

    config: LaunchSpeculation
    steps: Reasoned[int]
    tokens: int
    """Tokens checked at once."""
    head_bytes: float
    """0 if no head drafts."""
    schedule: dict[int, int]
    """Number of drafts by largest batch; larger batches draft nothing."""
    adaptive: dict[int, list[int]]
    """Numbers of drafts to choose among, by smallest batch."""


class Sizing(msgspec.Struct, frozen=True):
    """The numbers of one replica."""

    node: Node
    weights: Reasoned[Precision]
    checkpoint: Checkpoint | None
    """None if the folder is not on this machine."""
    tensor_parallel: Reasoned[int]
    memory: Reasoned[float]
    """Fraction of the GPUs' memory for weights, keys and values."""
    kv_dtype: Reasoned[str]
    attention: Reasoned[str]
    chunk_tokens: Reasoned[int]
    max_running: Reasoned[int]
    context_tokens: Reasoned[int]
    drafts: Drafts | None


def shape_of(launch: LaunchConfig, field: str) -> ModelShape:
    """The model's dimensions in BF16. Raises ConfigError if they are not known here, or if `shape` differs from the
    model's own folder."""
    name = launch.shape or launch.model
    if name in MODELS:
        shape = MODELS[name]
    elif (Path(name) / "config.json").is_file():
        shape = read_shape(Path(name))
    else:
        raise _unknown_shape(name, field)
    if launch.shape:
        _require_same_shape(launch, shape, field)
    return Precision.BF16.of(shape)


def _unknown_shape(name: str, field: str) -> ConfigError:
    return ConfigError(
        f"{field}.shape: {name!r} is no folder with a config.json on this machine; give a folder that is, or the name "
        f"of a modelled shape: {', '.join(MODELS)}",
        param=f"{field}.shape",
    )


def _require_same_shape(launch: LaunchConfig, shape: ModelShape, field: str) -> None:
    """Raises ConfigError. A folder whose architecture is not modelled is not compared: `shape` replaces it."""
    if not (Path(launch.model) / "config.json").is_file():
        return
    try:
        own = read_shape(Path(launch.model))
    except ConfigError:
        return
    alike = math.isclose(own.parameters, shape.parameters, rel_tol=ROUNDED)
    if not alike or _dimensions(own) != _dimensions(shape):
        raise ConfigError(
            f"{field}.shape: {launch.shape} is {_size(shape)}, and {launch.model} has a config.json here that says "
            f"{_size(own)}; leave shape out, or name that model's folder",
            param=f"{field}.shape",
        )


def _dimensions(shape: ModelShape) -> tuple[int, ...]:
    return shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_size


def _size(shape: ModelShape) -> str:
    return (
        f"{shape.parameters / 1e9:.3g} billion parameters in {shape.layers} layers of {shape.hidden:,}, "
        f"{shape.heads} heads and {shape.kv_heads} of keys and values"
    )


def weights_of(launch: LaunchConfig, gpu: Gpu, field: str) -> tuple[Reasoned[Precision], Checkpoint | None]:
    """The number format that the weights are served in. Raises ConfigError if the setting and the folder differ, but
    BF16 weights may be rounded to FP8 at the start."""
    found = read_checkpoint(Path(launch.model))
    if launch.weights == "auto":
        if found is not None:
            return Reasoned(found.precision, f"as {launch.model} has them"), found
        kind = Precision.FP8 if gpu.fp8_flops else Precision.BF16
        reason = f"{gpu.name} computes it" if gpu.fp8_flops else f"{gpu.name} has no units for FP8"
        return Reasoned(kind, f"{launch.model} is not on this machine, and {reason}"), None
    wanted = Precision(launch.weights)
    if (
        found is not None
        and found.precision is not wanted
        and (found.toolchain != PLAIN or wanted is not Precision.FP8)
    ):
        raise ConfigError(
            f"{field}.weights: {launch.weights} is requested, and {launch.model} holds {found.precision.value}; set "
            f"weights to {found.precision.value} or auto, or name a folder in {launch.weights}",
            param=f"{field}.weights",
        )
    return Reasoned(wanted, SET), found


def node_of(
    launch: LaunchConfig,
    tensor_parallel: int,
    field: str,
    speculating: bool = False,
    max_adapters: int = 0,
) -> Node:
    """The machine of one replica, with the model on it in its number formats. Raises ConfigError."""
    gpu = gpu_of(launch)
    weights, _ = weights_of(launch, gpu, field)
    shape = weights.value.of(shape_of(launch, field))
    shape = msgspec.structs.replace(shape, kv_bytes=1.0 if kv_dtype_of(launch, weights.value).value == "fp8" else 2.0)
    usable = launch.memory_fraction
    if speculating and (share := _head_share(launch, shape, gpu, tensor_parallel)):
        # a head has a layer of keys and values of its own
        shape = msgspec.structs.replace(shape, kv_bytes=shape.kv_bytes * (1 + 1 / shape.layers))
        usable = math.floor((usable - share) * 100) / 100
    return Node(
        f"{shape.name} on {tensor_parallel} x {gpu.name}",
        gpu,
        tensor_parallel,
        shape,
        usable_memory=usable,
        adapter_bytes=adapter_bytes(shape, launch.adapter_rank, max_adapters, tensor_parallel),
    )


def gpu_of(launch: LaunchConfig) -> Gpu:
    """The GPU, with the number of GPUs per machine that is set."""
    gpu = GPUS[launch.gpu]
    return msgspec.structs.replace(gpu, per_node=launch.gpus_per_node or gpu.per_node)


def kv_dtype_of(launch: LaunchConfig, weights: Precision) -> Reasoned[str]:
    """`fp8` or `bf16`."""
    if launch.kv_dtype != "auto":
        return Reasoned(launch.kv_dtype, SET)
    if weights is Precision.BF16:
        return Reasoned("bf16", "with BF16 weights")
    return Reasoned("fp8", f"with {weights.value.upper()} weights: half the bytes, twice the tokens in memory")


def size(
    launch: LaunchConfig,
    field: str,
    context_tokens: Reasoned[int],
    tensor_parallel: Reasoned[int],
    max_running: Reasoned[int] | None,
    speculating: bool,
    max_adapters: int,
) -> Sizing:
    """max_running: None if only memory limits it. speculating: whether the replica drafts, which requires
    `launch.speculation`. max_adapters: the pool's.

    Raises ConfigError, and what `require_fit` raises.
    """
    gpu = gpu_of(launch)
    node = node_of(launch, tensor_parallel.value, field, speculating, max_adapters)
    require_fit(node, context_tokens.value)
    weights, checkpoint = weights_of(launch, gpu, field)
    running = max_running or _all_that_fits(node, context_tokens.value)
    memory = Reasoned(
        node.usable_memory,
        f"{node.gpus} x {gpu.memory_bytes / 1e9:.0f} GB x {node.usable_memory:g} - "
        f"{node.memory.weights_bytes / 1e9:.1f} GB of weights"
        + (f" - {node.adapter_bytes / 1e9:.1f} GB for adapters" if max_adapters else "")
        + f" = {node.memory.kv_bytes / 1e9:.1f} GB, "
        f"{node.memory.kv_tokens:,} tokens of keys and values"
        + (", next to a draft head" if node.usable_memory < launch.memory_fraction else ""),
    )
    return Sizing(
        node=node,
        weights=weights,
        checkpoint=checkpoint,
        tensor_parallel=tensor_parallel,
        memory=memory,
        kv_dtype=kv_dtype_of(launch, weights.value),
        attention=_attention(launch, gpu, field),
        chunk_tokens=_chunk(launch, gpu),
        max_running=running,
        context_tokens=context_tokens,
        drafts=_drafts(launch, node, running.value, context_tokens.value, field) if speculating else None,
    )


def _all_that_fits(node: Node, context_tokens: int) -> Reasoned[int]:
    fits = max(min(node.memory.concurrent(context_tokens), MAX_RUNNING), 1)
    return Reasoned(
        fits,
        f"of {context_tokens:,} tokens each, as memory holds them; without a workload no promise is "
        "considered" if fits < MAX_RUNNING else "no workload is given; more streams only make steps longer",
    )  # fmt: skip


def _attention(launch: LaunchConfig, gpu: Gpu, field: str) -> Reasoned[str]:
    if launch.attention == "auto":
        if gpu.name in HOPPER:
            return Reasoned("fa3", f"{gpu.name} is a Hopper GPU, for which FlashAttention-3 was written")
        return Reasoned("flashinfer", f"FlashAttention-3 requires Hopper, and {gpu.name} has another architecture")
    if launch.attention == "fa3" and gpu.name == "B200":
        raise ConfigError(
            f"{field}.attention: fa3 has no kernels for {gpu.name} (it runs on compute capability 8.0 to 9.0); use "
            "flashinfer, or auto",
            param=f"{field}.attention",
        )
    return Reasoned(launch.attention, SET)


def _chunk(launch: LaunchConfig, gpu: Gpu) -> Reasoned[int]:
    if launch.chunk_tokens:
        return Reasoned(launch.chunk_tokens, SET)
    return Reasoned(gpu.chunk_tokens, f"as many as fill {gpu.name}; a longer chunk only delays running streams")


def _drafts(launch: LaunchConfig, node: Node, max_running: int, context_tokens: int, field: str) -> Drafts:
    config = launch.speculation
    assert config is not None, "speculating without launch.speculation"
    work = launch.workload
    tokens = work.prompt_tokens + work.output_tokens / 2 if work else context_tokens / 2
    drafting = Drafting(Roofline(node), _head_parameters(launch, node.model), tokens)
    steps = Reasoned(config.steps, SET)
    if not config.steps:
        best = drafting.best(1, config.acceptance, 7)
        if not best:
            raise ConfigError(
                f"{field}.speculation: of an acceptance of {config.acceptance:g}, even one stream alone gains "
                f"{drafting.gain(1, 1, config.acceptance):.2f} times by a draft: the head costs what it saves; remove "
                "speculation, or give the measured acceptance",
                param=f"{field}.speculation.acceptance",
            )
        gain = drafting.gain(1, best, config.acceptance)
        steps = Reasoned(
            best, f"one stream alone makes {gain:.1f} times the tokens if {config.acceptance:.0%} of drafts are kept"
        )
    return Drafts(
        config=config,
        steps=steps,
        tokens=config.draft_tokens or steps.value + 1,
        head_bytes=_head_parameters(launch, node.model) * HEAD_BYTES,
        schedule=drafting.schedule(config.acceptance, steps.value, max_running),
        adaptive=drafting.adaptive(steps.value, max_running),
    )


def _head_parameters(launch: LaunchConfig, shape: ModelShape) -> float:
    config = launch.speculation
    if config is None or config.algorithm == "ngram":
        return 0.0
    return head_parameters(Path(config.draft_model), shape)


def _head_share(launch: LaunchConfig, shape: ModelShape, gpu: Gpu, gpu_count: int) -> float:
    return _head_parameters(launch, shape) * HEAD_BYTES / (gpu.memory_bytes * gpu_count)
