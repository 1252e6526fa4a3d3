"""Pools the final states of a text into one vector, as a folder of sentence-transformers specifies.

The folder's `modules.json` lists the parts: the decoder, the pooling of its states and optionally a normalisation. A
model whose folder lacks that file generates text.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from contracts.errors import ConfigError
from engines.gguf.file import is_gguf

if TYPE_CHECKING:
    from torch import Tensor

    from engines.embedded.kv.mirror import Span
    from engines.embedded.sequence import Sequence

_MODES: dict[str, Literal["mean", "last"]] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
SUPPORTED = "Transformer, Pooling (mean_tokens or lasttoken) and Normalize"


class Pooling(msgspec.Struct, frozen=True):
    """The conversion of a text's states to its vector."""

    mode: Literal["mean", "last"]
    """mean: the mean of all tokens; last: the last token."""
    normalized: bool
    """Whether the vector is scaled to length 1."""
    dimensions: tuple[int, ...] | None = ()
    """Lengths to which a vector may be cut; None for any length."""

    @classmethod
    def read(cls, folder: Path) -> Pooling | None:
        """The folder's pooling; None for a GGUF file or without modules.json. Raises ConfigError if unsupported."""
        path = folder / "modules.json"
        if is_gguf(folder) or not path.exists():
            return None
        modules = _read(path)
        kinds = [str(one.get("type", "")).rpartition(".")[2] for one in modules]
        if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            raise ConfigError(f"{path}: the parts are {', '.join(kinds)}; supported: {SUPPORTED}")
        pooling_path = folder / str(modules[1].get("path", "")) / "config.json"
        chosen = [
            name for name, value in _read(pooling_path).items() if name.startswith("pooling_mode_") and value is True
        ]
        if len(chosen) != 1 or chosen[0] not in _MODES:
            raise ConfigError(
                f"{pooling_path}: {', '.join(chosen) or 'no pooling mode'} is set; supported: {SUPPORTED}"
            )
        config = _read(folder / "config.json")
        if config.get("is_causal") is False or config.get("use_bidirectional_attention"):
            raise ConfigError(f"{folder / 'config.json'}: is_causal must be true: attention to later tokens is missing")
        lengths = config.get("matryoshka_dimensions") or ()
        return cls(
            _MODES[chosen[0]],
            normalized=len(kinds) == 3,
            dimensions=None if config.get("is_matryoshka") and not lengths else tuple(lengths),
        )

    def can_have(self, dimensions: int, width: int) -> bool:
        """Whether a vector of `width` numbers may be cut to `dimensions`."""
        fits = dimensions <= width if self.dimensions is None else dimensions in self.dimensions
        return fits or dimensions == width


def pool(pooling: Pooling, hidden: Tensor, order: tuple[Span, ...]) -> None:
    """Add a step's final states to the vectors of its sequences; a sum that is not finite marks the sequence as broken.

    hidden: (tokens, width), the rows of `order`.
    """
    row = 0
    for sequence, start, stop in order:
        own, row = hidden[row : row + stop - start], row + stop - start
        if sequence.finish is not None:
            continue
        if pooling.mode == "last":
            total = own[-1].float()
        else:
            # a preempted sequence recomputes tokens that are already in the sum
            new = own[max(sequence.pooled_tokens - start, 0) :].float().sum(0)
            total = new if sequence.pooled is None else sequence.pooled + new
        sequence.pooled, sequence.pooled_tokens = total, max(stop, sequence.pooled_tokens)
        sequence.is_broken = sequence.is_broken or not bool(total.isfinite().all())


def vector_of(pooling: Pooling, sequence: Sequence) -> bytes:
    """The float32 numbers of the finished vector."""
    total = sequence.pooled
    assert total is not None
    if pooling.mode == "mean":
        total = total / sequence.pooled_tokens
    if pooling.normalized:
        total = total / total.norm().clamp_min(1e-12)
    return bytes(total.cpu().numpy().tobytes())


def _read(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
