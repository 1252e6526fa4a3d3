"""Renders a pool's settings as commands. The same settings give the same commands on every machine.

The only files that it reads are model folders on this machine, for shapes and number formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from contracts.desired_state import Pool, Replica
from contracts.errors import ConfigError
from engines.performance.catalog import GPUS
from tools.launch import matrix
from tools.launch.config import LaunchConfig
from tools.launch.dialects import embedded, llama_cpp, sglang, tensorrt_llm, vllm
from tools.launch.draft_head import require_head_of
from tools.launch.model_context import longest_context
from tools.launch.sizing import Sizing, size
from tools.launch.spec import LaunchSpec, Reasoned, Variable
from tools.launch.target import Target

LLAMA_CPP = "llama_cpp"
DIALECTS: Mapping[str, Callable[[Target], LaunchSpec]] = MappingProxyType(
    {
        "sglang": sglang.render,
        "tensorrt_llm": tensorrt_llm.render,
        "vllm": vllm.render,
        LLAMA_CPP: llama_cpp.render,
        "embedded": embedded.render,
    }
)


class Served(msgspec.Struct, frozen=True):
    """The values that determine a replica's command in addition to its own settings."""

    model_name: str
    """The name that engines serve the model under."""
    context_tokens: Reasoned[int]
    tensor_parallel: Reasoned[int] | None
    """None if the launch names no GPU."""
    max_running: Reasoned[int] | None
    """None if only memory limits it."""
    token_file: str
    """The file with the deployment's token."""


def render(pool: Pool, replica: Replica, launch: LaunchConfig, served: Served, speculation: bool) -> LaunchSpec:
    """The command, files and environment of one replica, with drafts or without.

    Raises ConfigError for settings that cannot work: see `engines.performance.fit`, `matrix` and the dialect.
    """
    field = f"pools.{pool.name}.launch"
    dialect = DIALECTS.get(pool.driver)
    if dialect is None:
        raise ConfigError(
            f"pools.{pool.name}.driver: nothing is rendered for {pool.driver!r}, whose engines are started elsewhere; "
            f"known: {', '.join(DIALECTS)}",
            param=f"pools.{pool.name}.driver",
        )
    if speculation and launch.speculation is None:
        raise ConfigError(
            f"{field}.speculation: {replica.id} drafts, but the settings do not say how; give "
            "[pools.launch.speculation], or speculation = false for the replica",
            param=f"{field}.speculation",
        )
    sizing = None
    if served.tensor_parallel is not None:
        sizing = size(
            launch,
            field,
            served.context_tokens,
            served.tensor_parallel,
            served.max_running,
            speculation,
            pool.max_adapters,
        )
    target = Target(pool, replica, launch, served.model_name, served.context_tokens, sizing, served.token_file)
    notes = [] if pool.driver == LLAMA_CPP or longest_context(launch) else [CONTEXT_NOT_COMPARED]
    compared = True
    if sizing is not None:
        matrix.require_compatible(target)
        compared = _require_head(target, sizing)
        notes = [*matrix.notes(target), *notes]
    spec = dialect(target)
    notes += spec.notes
    if not compared:
        notes.append(NOT_COMPARED)
    if launch.speculation is not None and not speculation and not replica.speculation:
        notes.append(UNUSED_SPECULATION)
    if sizing is not None and (pool.tensor_parallel or 1) != sizing.tensor_parallel.value:
        gpu_count = sizing.tensor_parallel.value
        notes.append(f"reports count one GPU a replica: set pools.{pool.name}.tensor_parallel = {gpu_count}")
    program = (launch.program or spec.program[0], *spec.program[1:])
    own = tuple(Variable(name, value) for name, value in launch.environment.items())
    return msgspec.structs.replace(spec, notes=tuple(notes), program=program, environment=(*spec.environment, *own))


def check_gpu(launch: LaunchConfig, driver: str, field: str) -> None:
    """Raise ConfigError if settings need a GPU and name none, or name one for an engine that takes none."""
    if launch.gpu and driver == LLAMA_CPP:
        raise ConfigError(
            f"{field}.gpu: {launch.gpu}, and llama.cpp fits itself to the machine it starts on; leave it out",
            param=f"{field}.gpu",
        )
    if launch.gpu:
        return
    if driver in NEED_GPU:
        raise ConfigError(
            f"{field}.gpu: empty, and the settings of {driver} are computed for a GPU; give one of {', '.join(GPUS)}",
            param=f"{field}.gpu",
        )
    usual = LaunchConfig(model=launch.model)
    for name in OF_GPU:
        if getattr(launch, name) != getattr(usual, name):
            raise ConfigError(
                f"{field}.{name}: it is computed for a GPU, and {field}.gpu is empty; give gpu (one of "
                f"{', '.join(GPUS)}), or write the engine's own option into extra_arguments",
                param=f"{field}.{name}",
            )


NEED_GPU = ("tensorrt_llm", "embedded")
OF_GPU = ("shape", "gpus_per_node", "weights", "kv_dtype", "attention", "chunk_tokens", "workload", "speculation")
"""Launch settings that apply only to a modelled GPU."""
UNUSED_SPECULATION = (
    "speculation is set up and this replica says that it does not draft: --speculation on prints how it would, and "
    "`speculation = true` in its entry tells the router that it does"
)
CONTEXT_NOT_COMPARED = "the model's folder is not on this machine, so context_tokens was not compared with its limit"
NOT_COMPARED = (
    "the folders of model and head are not both on this machine, so the two were not compared. Run render where both "
    "are: it refuses the head of another model"
)


def _require_head(target: Target, sized: Sizing) -> bool:
    config = target.launch.speculation
    if config is None or sized.drafts is None or config.algorithm == "ngram":
        return True
    return require_head_of(
        Path(target.launch.model),
        Path(config.draft_model),
        config.algorithm,
        sized.context_tokens.value,
        f"{target.field}.speculation",
    )
