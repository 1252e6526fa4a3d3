"""Lays out a fill-in-the-middle (FIM) prompt from a prefix and a suffix, by token ids.

Model families differ in their tokens and in the order. A tokenizer's tokens identify the family; the prefix comes first
unless the family's default or `"fim_order": "spm"` in tokenizer_config.json puts the suffix first.

The position of the cursor's line is also a property of the weights. Models learn to continue a whole prefix, and get
one unless the file has `"fim_typed_line": "after_middle"`. Such a model saw the half-typed line after the middle token,
as the beginning of its output, so that a keystroke changes only the end of the prompt (EFIM, arXiv 2505.21889, by whole
lines). The weights' folder sets the position, like the order. A model's `fim.typed_line` overrides the folder, for
weights that did not learn that form but complete as well with it. `"fim_min_confidence"` in the folder is the least
confidence at which a completion is worth showing; `fim.min_confidence` uses it.

A completion ends at any of its family's marks, and at the tokens that its models write after a completion (`ends`), in
addition to the end tokens in the model's own files, which are incomplete for a base model.

Text of other files comes first, each file after the family's own token, as Qwen and StarCoder learnt repositories;
Codestral learnt a line of text before each file, in the prefix. For other families, it is written as comments. If the
suffix comes first, they precede the marks, so that they stay in an engine's cache when the suffix changes; else they
are at the head of the prefix, which is equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from contracts.errors import ConfigError
from engines.tokenizer.control import ControlTokens
from engines.tokenizer.folder import TokenizerFolder

ORDERS = ("psm", "spm")
TYPED_LINES = ("before_middle", "after_middle")
REPOSITORY = "repository\n"
"""The repository's name for families with a token for it, because clients do not send the real one."""


class Family(msgspec.Struct, frozen=True):
    """The control strings of one family of models."""

    prefix: str
    suffix: str
    middle: str | None
    order: str = "psm"
    files: tuple[str, ...] = ()
    """Possible tokens before each file of a repository; the first one that the tokenizer has is used."""
    repository: str = ""
    """Token before all files."""
    file_line: str = ""
    """The line before each file, for a family that has text instead of a token."""
    ends: tuple[str, ...] = ()
    """Tokens that its models write after a completion, in addition to the marks above; a tokenizer may lack some."""


FAMILIES = (
    Family(  # Slipstream, Qwen2.5-Coder, CodeGemma, Granite 4
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        files=("<|file_sep|>", "<|file_separator|>"),
        repository="<|repo_name|>",
        ends=("<|endoftext|>", "<|fim_pad|>", "<|im_end|>"),
    ),
    Family(  # StarCoder, StableCode, Granite
        "<fim_prefix>", "<fim_suffix>", "<fim_middle>", files=("<file_sep>",), ends=("<|endoftext|>", "<fim_pad>")
    ),
    Family("<fim-prefix>", "<fim-suffix>", "<fim-middle>", ends=("<|endoftext|>", "<fim-pad>")),  # SantaCoder
    Family(  # DeepSeek-Coder
        "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", ends=("<｜end▁of▁sentence｜>", "<|EOT|>")
    ),
    Family("▁<PRE>", "▁<SUF>", "▁<MID>", ends=("▁<EOT>",)),  # CodeLlama
    Family("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", ends=("<|endoftext|>",)),  # GLM
    # Codestral continues the text after [PREFIX]
    Family("[PREFIX]", "[SUFFIX]", None, order="spm", file_line="+++++ {path}\n"),
)


class FillTemplate(msgspec.Struct, frozen=True):
    """The ids around the two sides of a gap."""

    prefix_id: int
    suffix_id: int
    middle_ids: tuple[int, ...]
    order: str
    line_after: bool = False
    """The cursor's line comes after the middle token."""
    repository_ids: tuple[int, ...] = ()
    """Ids before the first file of a repository, followed by its name."""
    file_ids: tuple[int, ...] = ()
    """Ids before each file, followed by its path; empty if files are part of the prefix."""
    file_line: str = ""
    """The line, with `{path}`, before each file in the prefix; empty if the weights know no such form."""
    comments_first: bool = False
    """Files written as comments come before the marks."""
    end_ids: tuple[int, ...] = ()
    """Ids that end a completion, in addition to the tokenizer's `end_ids`."""
    end_texts: tuple[str, ...] = ()
    """Texts of these ids, for an engine that takes no ids."""
    end_lines: tuple[str, ...] = ()
    """Texts that end a completion and are not tokens."""
    min_confidence: float = 0.0
    """Least geometric mean of a completion's token probabilities for it to be shown; 0 for no limit."""

    def fill(
        self, leading: Sequence[int], prefix: str, suffix: str, encode: Callable[[str], Sequence[int]]
    ) -> list[int]:
        """The whole prompt for two texts. encode: text to ids, without a begin-of-text token (`leading` has it).

        The completion continues at the end of `prefix`, wherever the half-typed line is, and does not repeat it.
        """
        cut = self.cut(prefix)
        return self.lay_out(leading, encode(prefix[:cut]), encode(suffix), encode(prefix[cut:]))

    def with_typed_line(self, where: Literal["auto", "before_middle", "after_middle"]) -> FillTemplate:
        """The same template with the cursor's line at that position; unchanged for "auto"."""
        line_after = where == "after_middle"
        if where == "auto" or line_after == self.line_after:
            return self
        return msgspec.structs.replace(self, line_after=line_after)

    def cut(self, prefix: str) -> int:
        """Start of the part of the prefix that comes after the middle token; the prefix's length if there is none."""
        return prefix.rfind("\n") + 1 if self.line_after else len(prefix)

    def lay_out(
        self,
        leading: Sequence[int],
        prefix: Sequence[int],
        suffix: Sequence[int],
        typed: Sequence[int] = (),
        files: Sequence[int] = (),
    ) -> list[int]:
        """The whole prompt: leading ids (a begin-of-text token, if the model has one), other files in the form of
        `file`, the two sides, the middle token, and the part of the prefix after it."""
        before, after = [self.prefix_id, *prefix], [self.suffix_id, *suffix]
        sides = before + after if self.order == "psm" else after + before
        return [*leading, *files, *sides, *self.middle_ids, *typed]

    @property
    def marks(self) -> int:
        """Number of a gap's tokens besides its two sides and the leading ids."""
        return 2 + len(self.middle_ids)

    def repository(self, encode: Callable[[str], Sequence[int]]) -> list[int]:
        """The ids before the first of several files. encode: see `fill`."""
        return [*self.repository_ids, *encode(REPOSITORY)] if self.repository_ids else []

    def file(self, path: str, text: str, encode: Callable[[str], Sequence[int]]) -> list[int]:
        """The ids of one file of a repository, if `file_ids` is set. path: empty if unknown."""
        return [*self.file_ids, *encode(f"{path}\n{text}" if path else text)]


def fill_template(folder: TokenizerFolder, control: ControlTokens) -> FillTemplate | None:
    """The template of the family whose tokens this tokenizer has, or None.

    Raises ConfigError for an invalid `fim_order`, `fim_typed_line` or `fim_min_confidence`.
    """
    order, line = _choice(folder, "fim_order", ORDERS), _choice(folder, "fim_typed_line", TYPED_LINES)
    min_confidence = _share(folder, "fim_min_confidence")
    for family in FAMILIES:
        names = [name for name in (family.prefix, family.suffix, family.middle) if name is not None]
        if all(name in control.by_text for name in names):
            prefix_id, suffix_id, *middle_ids = (control.by_text[name].id for name in names)
            marks = (*names, *family.files, *([family.repository] if family.repository else ()), *family.ends)
            ends = {name: control.by_text[name].id for name in marks if name in control.by_text}
            file_mark = family.file_line.partition("{path}")[0]
            return FillTemplate(
                prefix_id,
                suffix_id,
                tuple(middle_ids),
                order or family.order,
                line_after=line == "after_middle",
                repository_ids=_ids(control, (family.repository,)),
                file_ids=_ids(control, family.files),
                file_line=family.file_line,
                comments_first=(order or family.order) == "spm" and not family.file_line,
                end_ids=tuple(ends.values()),
                end_texts=tuple(name.removeprefix("▁") for name in ends),
                end_lines=(f"\n{file_mark}",) if file_mark else (),
                min_confidence=min_confidence,
            )
    return None


def _ids(control: ControlTokens, names: Sequence[str]) -> tuple[int, ...]:
    """The id of the first of these tokens that the tokenizer has; empty if it has none."""
    return tuple(control.by_text[name].id for name in names if name in control.by_text)[:1]


def _share(folder: TokenizerFolder, name: str) -> float:
    value = folder.config.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        where = folder.path / "tokenizer_config.json"
        raise ConfigError(f"{where}: {name} must be a number from 0 to below 1; got {value!r}")
    return float(value)


def _choice(folder: TokenizerFolder, name: str, choices: tuple[str, ...]) -> str | None:
    value: str | None = folder.config.get(name)
    if value is not None and value not in choices:
        where = folder.path / "tokenizer_config.json"
        raise ConfigError(f"{where}: {name} must be {' or '.join(choices)}; got {value!r}")
    return value
