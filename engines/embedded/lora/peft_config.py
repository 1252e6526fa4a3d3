"""Reads an adapter's `adapter_config.json`, with PEFT's names. It refuses settings with unsupported effects by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import InvalidField
from engines.embedded.lora.adapter_files import AdapterFiles

NAME = "adapter_config.json"
MAX_BYTES = 1 << 20
ABSENT = (
    "alpha_pattern", "rank_pattern", "layers_to_transform", "layer_replication", "modules_to_save", "lora_bias",
    "trainable_token_indices", "target_parameters", "use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out",
    "alora_invocation_tokens",
)  # fmt: skip
"""Unsupported features; each must be absent, false or empty."""
PLAIN_STARTS = (True, False, None, "gaussian", "orthogonal", "eva")
"""Initialisations that leave the base model unchanged, unlike PiSSA, OLoRA, CorDA and LoftQ."""

MAX_ALPHA = 1_000_000


class PeftConfig(msgspec.Struct, frozen=True):
    """The settings of an adapter. rank: rows of every A. scale: factor on B A x."""

    rank: int
    scale: float

    @classmethod
    def read(cls, folder: Path, files: AdapterFiles, most_rank: int) -> PeftConfig:
        """Read the settings. folder: for errors. Raises InvalidField with the field, its value and the allowed ones."""
        path = folder / NAME
        try:
            raw = msgspec.json.decode(files.read(NAME, MAX_BYTES))
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidField(f"{path}: not valid JSON: {error}", param=NAME) from None
        if not isinstance(raw, dict):
            raise InvalidField(f"{path}: must hold a JSON object; got {type(raw).__name__}", param=NAME)
        return cls._of(path, raw, most_rank)

    @classmethod
    def _of(cls, path: Path, raw: dict[str, Any], most_rank: int) -> PeftConfig:
        def wrong(field: str, allowed: str) -> InvalidField:
            return InvalidField(f"{path}: {field} must be {allowed}; got {raw.get(field)!r}", param=field)

        if raw.get("peft_type") != "LORA":
            raise wrong("peft_type", "LORA")
        for field in ABSENT:
            if raw.get(field):
                raise wrong(field, "absent: it is not supported by this engine")
        if raw.get("bias", "none") != "none":
            raise wrong("bias", "none")
        if raw.get("init_lora_weights") not in PLAIN_STARTS:
            raise wrong("init_lora_weights", "one that leaves the base model's weights as they are")
        rank, alpha = raw.get("r"), raw.get("lora_alpha")
        if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= most_rank:
            raise wrong("r", f"an integer from 1 to {most_rank} (engine.lora.max_rank)")
        if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not abs(alpha) <= MAX_ALPHA:
            raise wrong("lora_alpha", f"a number from -{MAX_ALPHA:,} to {MAX_ALPHA:,}")
        # rank-stabilised LoRA: Kalajdzievski 2023
        return cls(rank, alpha / (math.sqrt(rank) if raw.get("use_rslora") else rank))
