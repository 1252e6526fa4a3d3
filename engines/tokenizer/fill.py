"""Lays out a prefix and a suffix for the model to fill the gap between them (FIM), by token ids.

The families differ in their tokens and in the order; the tokens that a tokenizer has tell the family, the order is
prefix first unless tokenizer_config.json says `"fim_order": "spm"`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from contracts.errors import ConfigError
from engines.tokenizer.control import ControlTokens
from engines.tokenizer.folder import TokenizerFolder

ORDERS = ("psm", "spm")


class _Family(msgspec.Struct, frozen=True):
    prefix: str
    suffix: str
    middle: str | None
    order: str = "psm"


FAMILIES = (
    _Family("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Slipstream, Qwen2.5-Coder, CodeGemma
    _Family("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, StableCode, Granite
    _Family("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    _Family("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    _Family("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    _Family("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    _Family("[PREFIX]", "[SUFFIX]", None, order="spm"),  # Codestral: the text after [PREFIX] is continued
)


class FillTemplate(msgspec.Struct, frozen=True):
    """The ids around the two sides of a gap."""

    prefix_id: int
    suffix_id: int
    middle_ids: tuple[int, ...]
    order: str

    def lay_out(self, leading: Sequence[int], prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """The whole prompt: leading ids (a begin-of-text token, if the model has one), the sides, the marker."""
        before, after = [self.prefix_id, *prefix], [self.suffix_id, *suffix]
        sides = before + after if self.order == "psm" else after + before
        return [*leading, *sides, *self.middle_ids]


def fill_template(folder: TokenizerFolder, control: ControlTokens) -> FillTemplate | None:
    """The template of the family whose tokens this tokenizer has, or None. Raises ConfigError on a bad fim_order."""
    order = folder.config.get("fim_order")
    if order is not None and order not in ORDERS:
        raise ConfigError(f"{folder.path / 'tokenizer_config.json'}: fim_order must be psm or spm; got {order!r}")
    for family in FAMILIES:
        names = [name for name in (family.prefix, family.suffix, family.middle) if name is not None]
        if all(name in control.by_text for name in names):
            prefix_id, suffix_id, *middle_ids = (control.by_text[name].id for name in names)
            return FillTemplate(prefix_id, suffix_id, tuple(middle_ids), order or family.order)
    return None
