"""Keys and values in 8 bits: a code for every number, and after a head's codes their scale.

One scale for a token's key in one head, and one for its value, like vLLM's `int8_per_token_head`. It is known when the
token is computed, so nothing is calibrated, and a token's numbers are the same in any batch. The scale is stored in the
same row, so a copied or moved token takes it along.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engines.layers import fp8, int8

CODES: dict[str, torch.dtype] = {"int8": torch.int8, "fp8": torch.uint8}
"""Element type of a store's tensor, by format; fp8: E4M3's bits, which PyTorch moves in no other type everywhere."""
SCALE = torch.bfloat16
"""Type of a scale. Codes are made by the stored scale, so rounding it costs nothing."""


def is_narrow(dtype: torch.dtype) -> bool:
    """A store of this type has codes and scales."""
    return dtype in CODES.values()


def row_width(head_dim: int) -> int:
    """Bytes of one head's key or value, the scale included."""
    return head_dim + SCALE.itemsize


def encode(heads: Tensor, codes: torch.dtype) -> Tensor:
    """heads: (..., head_dim), even. Returns (..., row_width) of the type `codes`, one of `CODES`."""
    numbers = heads.float()
    largest = numbers.abs().amax(-1, keepdim=True)
    most = int8.MAX if codes == torch.int8 else fp8.MAX
    scale = (largest / most).clamp_min(torch.finfo(SCALE).tiny).to(SCALE)
    # a scale that was rounded down leaves the largest number slightly beyond the last code
    steps = (numbers / scale.float()).clamp_(-most, most)
    rounded = steps.round_().to(codes) if codes == torch.int8 else steps.to(torch.float8_e4m3fn).view(codes)
    return torch.cat((rounded, scale.view(codes)), -1)


def decode(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """rows: (..., row_width), contiguous, of one of `CODES`. Returns (..., head_dim): exact in float32."""
    codes, scale = rows[..., : -SCALE.itemsize], rows[..., -SCALE.itemsize :].view(SCALE)
    numbers = codes if codes.dtype == torch.int8 else codes.view(torch.float8_e4m3fn)
    return (numbers.float() * scale.float()).to(dtype)
