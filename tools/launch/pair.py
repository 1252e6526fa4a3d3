"""Checks that the two halves of an SGLang pair are launched alike. Keys, values and the hidden states from which a
draft head continues are copied as raw memory, so both halves must use the same formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from contracts.desired_state import Pool
from contracts.errors import ConfigError
from tools.launch.config import LaunchConfig
from tools.launch.matrix import further_options
from tools.launch.sizing import gpu_of, kv_dtype_of, weights_of

NUMBERS = ("--dtype", "--quantization")
"""Options that change the copied data and that settings do not always write."""


class HalvesDiffer(ConfigError):
    """A decode pool and its prefill pool are launched with incompatible settings."""


class Half(NamedTuple):
    """One pool of a pair, and how its engines are started."""

    pool: Pool
    launch: LaunchConfig

    @property
    def field(self) -> str:
        """The name of its launch settings, for messages."""
        return f"pools.{self.pool.name}.launch"


def require_alike(decode: Half, prefill: Half) -> None:
    """Raises HalvesDiffer, naming both pools, and what `weights_of` raises."""
    theirs = dict(_compared(prefill))
    for setting, ours in _compared(decode):
        if ours != theirs[setting]:
            field = f"{decode.field}.{setting}"
            raise HalvesDiffer(
                f"{field}: {ours or 'none'}, and {theirs[setting] or 'none'} for pools.{prefill.pool.name}, which "
                "computes its prompts; give both halves of a pair the same",
                param=field,
            )
    if _head(decode.launch):
        _require_drafting_alike(decode.pool, prefill.pool)


def _compared(half: Half) -> Iterator[tuple[str, str]]:
    """Each setting with its effective value; `auto` is resolved."""
    launch = half.launch
    weights, _ = weights_of(launch, gpu_of(launch), half.field)
    yield "model", launch.model
    yield "weights", weights.value.value
    yield "kv_dtype", kv_dtype_of(launch, weights.value).value
    yield "transfer_backend", launch.transfer_backend
    yield "speculation", _head(launch)
    further = further_options(launch)
    yield "extra_arguments", " ".join(f"{name} {further[name]}" for name in NUMBERS if name in further)


def _head(launch: LaunchConfig) -> str:
    """The draft head in words; empty if there is none, as for n-grams."""
    config = launch.speculation
    return "" if config is None or config.algorithm == "ngram" else f"{config.algorithm} {config.draft_model}"


def _require_drafting_alike(decode: Pool, prefill: Pool) -> None:
    """Raises HalvesDiffer if only some replicas draft: any engine of one half may serve any engine of the other."""
    drafting = {replica.id: replica.speculation for pool in (decode, prefill) for replica in pool.replicas}
    if len(set(drafting.values())) == 2:
        with_head = ", ".join(name for name, drafts in drafting.items() if drafts)
        without = ", ".join(name for name, drafts in drafting.items() if not drafts)
        field = f"pools.{prefill.name}.replicas"
        raise HalvesDiffer(
            f"{field}: of pools.{decode.name} and pools.{prefill.name}, {with_head} are started with the draft head "
            f"and {without} without; say speculation = true of all replicas of both halves, or of none",
            param=field,
        )
