"""Compiles grammars against a model's vocabulary. It imports no PyTorch, which the trial processes do not need."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Collection
from pathlib import Path
from typing import IO

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from engines.embedded.grammar.rehearsal import error_of, rehearse
from engines.tokenizer.control import gives_text
from engines.tokenizer.folder import TokenizerFolder


class KeptDefinition:
    """A model's tokenizer in llguidance's form, in an unnamed file. A process that restarts later can read it even if
    the model's own file was removed or replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reading = threading.Lock()
        self._file: IO[bytes] | None = None
        self._closed = False

    def descriptor(self) -> int:
        """The open file, which the first call writes. Raises ConfigError, OSError, or EOFError if closed."""
        with self._reading:
            if self._closed:
                raise EOFError
            if self._file is None:
                definition = TokenizerFolder.read(self._folder).definition
                added = [{**token, "special": not gives_text(token)} for token in definition.get("added_tokens") or []]
                file = tempfile.TemporaryFile()  # noqa: SIM115  (kept open for the processes)
                file.write(msgspec.json.encode({**definition, "added_tokens": added}))
                file.flush()
                self._file = file
            return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        with self._reading:
            self._closed = True
            if self._file is not None:
                self._file.close()


class Vocabulary:
    """One model's tokens, shared by compiled grammars. Reading a large vocabulary takes a second."""

    def __init__(self, definition: int, width: int, end_ids: Collection[int]) -> None:
        """definition: the descriptor of `KeptDefinition`. width: number of the model's logits. end_ids: ids that
        may follow a complete text."""
        # not `read`, because the processes share the file's position
        text = os.pread(definition, os.fstat(definition).st_size, 0).decode()
        self.tokens = LLTokenizer(text, n_vocab=width, eos_token=sorted(end_ids) or None)

    @classmethod
    def read(cls, folder: Path, width: int, end_ids: Collection[int]) -> Vocabulary:
        """The vocabulary of a model's folder or file. Raises ConfigError and OSError."""
        kept = KeptDefinition(folder)
        try:
            return cls(kept.descriptor(), width, end_ids)
        finally:
            kept.close()

    def compile(self, text: str) -> tuple[LLMatcher, str | None]:
        """Compile a grammar in llguidance's own form. Returns it at its beginning, and its fault or None. It may take
        minutes, without the interpreter lock."""
        matcher = LLMatcher(self.tokens, text, log_level=0, limits=_limits())
        if (error := error_of(matcher)) is not None:
            return matcher, f"this cannot be enforced: {error}"
        # this also fills the lexer that sequences share, which would otherwise delay their first step
        limit = rehearse(matcher)
        return matcher, None if limit is None else f"too complex to be enforced: {limit}"


def _limits() -> LLParserLimits:
    """Limits of a few milliseconds for a step of a guided sequence, and of tens of megabytes for its lexer."""
    return LLParserLimits(
        step_lexer_fuel=100_000,
        step_max_items=30_000,
        max_lexer_states=20_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )
