"""Stores keys and values in 8 bits: a code for every number, and after each head's codes their scale.

Each token has one scale per head for its key and one for its value, like vLLM's `int8_per_token_head`. A scale is known
when the token is computed, so it needs no calibration, and a token's numbers are the same in any batch. The scale is
stored in the same row, so it moves with its token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engines.layers import fp8, int8

CODES: dict[str, torch.dtype] = {"int8": torch.int8, "fp8": torch.uint8}
"""Element type of a store's tensor, by format. fp8 has E4M3's bits in uint8, because not every PyTorch copies E4M3."""
SCALE = torch.bfloat16
"""Type of a scale. Codes are computed with the rounded scale, so the rounding causes no error."""


def is_narrow(dtype: torch.dtype) -> bool:
    """Whether a store of this type has codes and scales."""
    return dtype in CODES.values()


def row_width(head_dim: int) -> int:
    """Bytes of one head's key or value, including its scale."""
    return head_dim + SCALE.itemsize


def encode(heads: Tensor, codes: torch.dtype) -> Tensor:
    """Encode `heads`, (..., head_dim) with an even head_dim, as (..., row_width) of type `codes`, one of `CODES`."""
    numbers = heads.float()
    largest = numbers.abs().amax(-1, keepdim=True)
    max_code = int8.MAX if codes == torch.int8 else fp8.MAX
    scale = (largest / max_code).clamp_min(torch.finfo(SCALE).tiny).to(SCALE)
    # with a scale that was rounded down, the largest number is slightly beyond the last code
    steps = (numbers / scale.float()).clamp_(-max_code, max_code)
    rounded = steps.round_().to(codes) if codes == torch.int8 else steps.to(torch.float8_e4m3fn).view(codes)
    return torch.cat((rounded, scale.view(codes)), -1)


def decode(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Decode contiguous rows, (..., row_width) of a type in `CODES`, to (..., head_dim); exact in float32."""
    codes, scale = rows[..., : -SCALE.itemsize], rows[..., -SCALE.itemsize :].view(SCALE)
    numbers = codes if codes.dtype == torch.int8 else codes.view(torch.float8_e4m3fn)
    return (numbers.float() * scale.float()).to(dtype)
