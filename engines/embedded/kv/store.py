"""The memory for keys and values of all layers, cut into pages."""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.config import KVConfig
from engines.embedded.kv.budget import MIN_BYTES
from engines.embedded.models.config import ModelConfig
from engines.layers import narrow_kv


class KVStore:
    """One tensor, (layers, pages, page_tokens, 2, kv_heads, head_dim); in 8 bits, the last dimension is
    `narrow_kv.row_width`. The budget determines the number of pages."""

    def __init__(
        self,
        model: ModelConfig,
        config: KVConfig,
        dtype: torch.dtype,
        context_tokens: int,
        device: torch.device | None = None,
        beside_bytes: int = 0,
    ) -> None:
        """dtype: the model's number format. beside_bytes: memory per token elsewhere that counts against the budget,
        such as a head's keys and values.

        Raises ConfigError if the budget does not hold one sequence of `context_tokens`.
        """
        self.page_tokens = config.page_tokens
        self.head_dim = model.head_dim
        self.elements_per_token = model.kv_elements_per_token
        """Number of values stored per token, in any format."""
        self.token_bytes = kv_token_bytes(model, config, dtype)
        self.page_bytes = self.token_bytes * config.page_tokens
        budgeted = self.page_bytes + beside_bytes * config.page_tokens
        budget = MIN_BYTES if config.budget_bytes is None else config.budget_bytes
        self.total_pages = budget // budgeted
        min_pages = -(-context_tokens // config.page_tokens)
        held = self.total_pages * config.page_tokens
        self.cached_pages = None if config.cached_bytes is None else config.cached_bytes // budgeted
        """Pages that the prefix cache may keep while no sequence owns them; None for all."""
        if self.total_pages < min_pages:
            raise ConfigError(
                f"engine.kv.budget_bytes: {budget} bytes hold {held:,} tokens of this model, and one "
                f"request may need {context_tokens:,}. Give at least {min_pages * budgeted} (--kv-budget-bytes), or a "
                f"context of {held:,} at most (engine.context_tokens, or --context-tokens; with `up` for one model "
                "alone --chat-context-tokens or --code-context-tokens).",
                param="engine.kv.budget_bytes",
            )
        narrow = config.dtype != "auto"
        self.format = {"fp8": "fp8_e4m3", "int8": "int8"}.get(config.dtype, str(dtype).removeprefix("torch."))
        """SGLang's name for the number format."""
        shape = (
            model.num_hidden_layers,
            self.total_pages + 1,
            config.page_tokens,
            2,
            model.num_key_value_heads,
            narrow_kv.row_width(model.head_dim) if narrow else model.head_dim,
        )
        # zeros, because hidden positions have weight 0, and 0 times a leftover NaN is NaN
        self.pages: Tensor = _zeros(shape, narrow_kv.CODES[config.dtype] if narrow else dtype, device)

    @property
    def spare_page(self) -> int:
        """A page that no sequence ever gets, for rows that pad a batch."""
        return self.total_pages

    @property
    def is_narrow(self) -> bool:
        """Whether keys and values are stored in 8 bits."""
        return narrow_kv.is_narrow(self.pages.dtype)

    def copy(self, source: int, target: int) -> None:
        """Copy a page in all layers."""
        self.pages[:, target].copy_(self.pages[:, source])

    def clear(self, pages: list[int]) -> None:
        """Zero pages in all layers, because the unused rest of a page is multiplied by 0, and 0 times NaN is NaN."""
        self.pages[:, torch.tensor(pages, dtype=torch.int64, device=self.pages.device)] = 0

    def are_finite(self, pages: list[int]) -> bool:
        """Whether no number in these pages is NaN or infinite. Not for a store in 8 bits."""
        numbers = self.pages[:, torch.tensor(pages, dtype=torch.int64, device=self.pages.device)]
        return math.isfinite(numbers.sum(dtype=torch.float32).item())

    def move(self, sources: list[int], targets: list[int]) -> None:
        """Copy keys and values of single tokens in all layers, between slots (page * page_tokens + offset)."""
        slots = self.pages.flatten(1, 2)
        device = self.pages.device
        moved = slots.index_select(1, torch.tensor(sources, device=device))
        slots.index_copy_(1, torch.tensor(targets, device=device), moved)

    @property
    def total_tokens(self) -> int:
        """Number of tokens that all pages hold."""
        return self.total_pages * self.page_tokens


def kv_token_bytes(model: ModelConfig, config: KVConfig, dtype: torch.dtype) -> int:
    """Bytes of a token's keys and values. dtype: the model's number format."""
    return config.token_bytes(model.kv_elements_per_token // model.head_dim, model.head_dim, dtype.itemsize)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | None) -> Tensor:
    """Zeros. On a CPU, the system provides memory at its first write; `torch.zeros` would take all of it at once."""
    if device is not None and device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
