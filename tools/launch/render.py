"""A pool's settings as commands: pure, so that the same settings print the same words wherever they are read.

Only folders of models that are on this machine are looked into, for shapes and number formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from contracts.desired_state import Pool, Replica
from contracts.errors import ConfigError
from tools.launch import matrix
from tools.launch.config import LaunchConfig
from tools.launch.dialects import embedded, sglang, tensorrt_llm, vllm
from tools.launch.draft_head import require_head_of
from tools.launch.model_context import longest_context
from tools.launch.sizing import Sizing, size
from tools.launch.spec import LaunchSpec, Reasoned
from tools.launch.target import Target

DIALECTS: Mapping[str, Callable[[Target], LaunchSpec]] = MappingProxyType(
    {
        "sglang": sglang.render,
        "tensorrt_llm": tensorrt_llm.render,
        "vllm": vllm.render,
        "embedded": embedded.render,
    }
)


class Served(msgspec.Struct, frozen=True):
    """What decides a replica beside its own settings."""

    model_name: str
    """The name that engines serve the model under."""
    context_tokens: Reasoned[int]
    tensor_parallel: Reasoned[int]
    max_running: Reasoned[int] | None
    """None: nothing but memory bounds it."""
    token_file: str
    """Where the deployment's token is."""


def render(pool: Pool, replica: Replica, launch: LaunchConfig, served: Served, speculation: bool) -> LaunchSpec:
    """The command, files and environment of one replica, with drafts or without.

    Raises ConfigError for what cannot work: see `engines.performance.fit`, `matrix` and the dialect.
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
            f"{field}.speculation: {replica.id} is to draft, and it is not said how; give [pools.launch.speculation], "
            "or speculation = false for the replica",
            param=f"{field}.speculation",
        )
    sized = size(
        launch,
        field,
        served.context_tokens,
        served.tensor_parallel,
        served.max_running,
        speculation,
        pool.max_adapters,
    )
    target = Target(pool, replica, launch, served.model_name, sized, served.token_file)
    matrix.require_compatible(target)
    compared = _require_head(target, sized)
    spec = dialect(target)
    untold = () if longest_context(launch) else (CONTEXT_NOT_COMPARED,)
    notes = [*matrix.notes(target), *untold, *spec.notes]
    if not compared:
        notes.append(NOT_COMPARED)
    if launch.speculation is not None and not speculation and not replica.speculation:
        notes.append(UNUSED_SPECULATION)
    cards = sized.tensor_parallel.value
    if (pool.tensor_parallel or 1) != cards:
        notes.append(f"reports count one card a replica: set pools.{pool.name}.tensor_parallel = {cards}")
    return msgspec.structs.replace(spec, notes=tuple(notes))


UNUSED_SPECULATION = (
    "speculation is set up and this replica says that it does not draft: --speculation on prints how it would, and "
    "`speculation = true` in its entry tells the router that it does"
)
CONTEXT_NOT_COMPARED = "the model's folder is not on this machine, so context_tokens was not compared with its limit"
NOT_COMPARED = (
    "the folders of model and head are not both on this machine, so the two were not compared: render once where both "
    "are, and a head of another model is refused"
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
