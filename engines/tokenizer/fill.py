"""Lays out a fill-in-the-middle (FIM) prompt from a prefix and a suffix, by token ids.

The families differ in their tokens and in the order. A tokenizer's tokens identify the family; the order is prefix
first unless tokenizer_config.json says `"fim_order": "spm"`.

The position of the cursor's line is a property of the weights too. Models learn to continue a whole prefix, and get one
unless the file has `"fim_typed_line": "after_middle"`: such a model saw the half-typed line after the middle token, as
the beginning of what it continues, so that a keystroke changes only the end of the prompt (EFIM, arXiv 2505.21889, by
whole lines). The weights' folder sets it, like the order; a model's `fim.typed_line` overrides the folder, for weights
that do as well without having learnt it.
The confidence from which a completion is worth showing is theirs too: `"fim_min_confidence"`, read by
`fim.min_confidence`.

A completion ends at any of its family's marks and at the tokens its models put after one (`ends`), in addition to the
end tokens in the model's own files, which are incomplete for a base model.

Text of other files comes before all of it, each file after the family's own token, as Qwen and StarCoder learnt
repositories; Codestral learnt a line of text before each, in the prefix. If a family has neither, it is written as
comments: before the marks where the suffix comes first, so that they stay in an engine's cache when it changes; else at
the head of the prefix, which is equivalent.
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
"""The repository's name where a family has a token for it: clients do not send theirs."""


class Family(msgspec.Struct, frozen=True):
    """The control strings of one family of models."""

    prefix: str
    suffix: str
    middle: str | None
    order: str = "psm"
    files: tuple[str, ...] = ()
    """Tokens before each file of a repository; the first that a tokenizer has is its own."""
    repository: str = ""
    """Tokens before all files."""
    file_line: str = ""
    """Text instead of a token: the line before each file."""
    ends: tuple[str, ...] = ()
    """Tokens that its models write after a completion, in addition to the marks above; those that a tokenizer lacks are
    skipped."""


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
    # Codestral: the text after [PREFIX] is continued
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
    """Ids before each file, followed by its path; empty: files are part of the prefix."""
    file_line: str = ""
    """The line before each file where it is part of the prefix, with `{path}`; empty: the weights know no such form."""
    comments_first: bool = False
    """Files written as comments come before the marks."""
    end_ids: tuple[int, ...] = ()
    """Ids that end a completion, in addition to the tokenizer's `end_ids`."""
    end_texts: tuple[str, ...] = ()
    """Texts of these ids, for an engine that takes no ids."""
    end_lines: tuple[str, ...] = ()
    """Texts that end a completion and are no tokens."""
    min_confidence: float = 0.0
    """Least geometric mean of its tokens' probabilities that a completion needs to be shown; 0: none."""

    def fill(
        self, leading: Sequence[int], prefix: str, suffix: str, encode: Callable[[str], Sequence[int]]
    ) -> list[int]:
        """The whole prompt for two texts. encode: text to ids, without a begin-of-text token (`leading` has it).

        The completion continues at the end of `prefix`, wherever the half-typed line is: it is not repeated.
        """
        cut = self.cut(prefix)
        return self.lay_out(leading, encode(prefix[:cut]), encode(suffix), encode(prefix[cut:]))

    def with_typed_line(self, where: Literal["auto", "before_middle", "after_middle"]) -> FillTemplate:
        """The same with the cursor's line at that position; auto: unchanged."""
        line_after = where == "after_middle"
        if where == "auto" or line_after == self.line_after:
            return self
        return msgspec.structs.replace(self, line_after=line_after)

    def cut(self, prefix: str) -> int:
        """Start of the part of the prefix that comes after the middle token; the prefix's end: there is none."""
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
        `file`, the sides, the marker, and the part of the prefix after it."""
        before, after = [self.prefix_id, *prefix], [self.suffix_id, *suffix]
        sides = before + after if self.order == "psm" else after + before
        return [*leading, *files, *sides, *self.middle_ids, *typed]

    @property
    def marks(self) -> int:
        """Number of tokens of a gap besides the two sides, without the leading ids."""
        return 2 + len(self.middle_ids)

    def repository(self, encode: Callable[[str], Sequence[int]]) -> list[int]:
        """The ids before the first of several files. encode: see `fill`."""
        return [*self.repository_ids, *encode(REPOSITORY)] if self.repository_ids else []

    def file(self, path: str, text: str, encode: Callable[[str], Sequence[int]]) -> list[int]:
        """The ids of one file of a repository, if `file_ids` is set. path: empty: unknown."""
        return [*self.file_ids, *encode(f"{path}\n{text}" if path else text)]


def fill_template(folder: TokenizerFolder, control: ControlTokens) -> FillTemplate | None:
    """The template of the family whose tokens this tokenizer has, or None.

    Raises ConfigError for a `fim_order`, a `fim_typed_line` or a `fim_min_confidence` that is unknown.
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
    """The ids of the first of these that the tokenizer has."""
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
