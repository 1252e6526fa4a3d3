"""The vocabulary that grammars are compiled against, and the compilation itself; free of PyTorch, which the trial
processes do not need.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from engines.embedded.grammar.rehearsal import error_of, rehearse
from engines.tokenizer.control import gives_text
from engines.tokenizer.folder import TokenizerFolder


class Vocabulary:
    """One model's tokens. Reading a large vocabulary takes a second; compiled grammars share it."""

    def __init__(self, folder: Path, width: int, end_ids: Collection[int]) -> None:
        """width: of the model's logits. end_ids: ids that may follow a complete text. Raises ConfigError."""
        definition = TokenizerFolder.read(folder).definition
        added = [{**token, "special": not gives_text(token)} for token in definition.get("added_tokens") or []]
        marked = msgspec.json.encode({**definition, "added_tokens": added}).decode()
        self.tokens = LLTokenizer(marked, n_vocab=width, eos_token=sorted(end_ids) or None)

    def compile(self, text: str) -> tuple[LLMatcher, str | None]:
        """Compile a grammar in llguidance's own form. Returns it at its beginning, and its fault, if any. May take
        minutes; without the interpreter lock."""
        matcher = LLMatcher(self.tokens, text, log_level=0, limits=_limits())
        if (error := error_of(matcher)) is not None:
            return matcher, f"this cannot be enforced: {error}"
        # it also fills the lexer that sequences share, which would delay their first step
        limit = rehearse(matcher)
        return matcher, None if limit is None else f"too complex to be enforced: {limit}"


def _limits() -> LLParserLimits:
    """A step of a guided sequence may take some milliseconds, and its lexer some tens of megabytes, at most."""
    return LLParserLimits(
        step_lexer_fuel=100_000,
        step_max_items=30_000,
        max_lexer_states=20_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )
