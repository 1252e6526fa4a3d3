"""The parts that a quantizer must leave unchanged, in a file that other tools can read.

    {"format": "slipstream-keep-1", "model": "slipstream-chat", "scheme": {"name": "fp8", …},
     "parts": ["layers.0.qkv", "head"],
     "modules": ["model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", …, "lm_head"],
     "keys_and_values": [0], "kl_budget": 0.002, "kl_per_token": {"value": …, "lower": …, "upper": …},
     "extra_bytes": 193536}

`modules` are Hugging Face's names, as in exclude lists of quantizers. `parts` are this project's names, as in
`engine.fp8.keep`. `keys_and_values` are the numbers of layers whose keys and values must not be rounded.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from tools.quantization.distance import Estimate
from tools.quantization.scheme import Scheme
from tools.quantization.sensitivity import Report

FORMAT = "slipstream-keep-1"
_MODULES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
_WHOLE = {"embedding": "model.embed_tokens", "head": "lm_head"}


class KeepList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parts of a model that stay in higher precision, by the project's names and by the file's module names."""

    format: str
    model: str
    scheme: Scheme
    parts: tuple[str, ...]
    modules: tuple[str, ...]
    keys_and_values: tuple[int, ...]
    kl_budget: float
    kl_per_token: Estimate
    """KL with these parts kept."""
    extra_bytes: int


def keep_list(report: Report) -> KeepList:
    """The parts that a report chose, with those that its scheme already kept."""
    found = [one.part.name for one in report.parts]
    kept = [
        name for name in found if name in report.keep or (report.scheme.wants(name) and not report.scheme.rounds(name))
    ]
    kept.sort(key=_order)
    layers = [name.split(".") for name in kept if name.endswith(".kv")]
    return KeepList(
        FORMAT,
        report.model,
        report.scheme,
        tuple(kept),
        tuple(module for name in kept for module in modules_of(name)),
        tuple(int(number) for _, number, _ in layers),
        report.budget_kl,
        report.kept.kl_per_token,
        report.extra_bytes,
    )


def read_keep_list(path: Path) -> KeepList:
    """Raises ConfigError, naming the file, if it is not a keep list."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=KeepList)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: not a file that `--export` of sensitivity or gate writes: {error}") from None
    if found.format != FORMAT:
        raise ConfigError(f"{path}: format must be {FORMAT}; got {found.format!r}: measure sensitivity again")
    return found


def modules_of(part: str) -> tuple[str, ...]:
    """Hugging Face's names of a part's modules; empty for keys and values, which are not modules."""
    if part in _WHOLE:
        return (_WHOLE[part],)
    _, number, kind = part.split(".")
    return tuple(f"model.layers.{number}.{name}" for name in _MODULES.get(kind, ()))


def _order(part: str) -> tuple[int, str]:
    return (int(part.split(".")[1]), part) if part not in _WHOLE else (1_000_000, part)
