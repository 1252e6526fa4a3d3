"""Compiles grammars off the event loop and keeps the newest, as clients send the same schema again and again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from contracts.errors import InvalidField
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.guide import Guide
from engines.embedded.grammar.spec import GrammarSpec
from engines.tokenizer.control import gives_text
from engines.tokenizer.folder import TokenizerFolder


class GrammarCompiler:
    """The grammars of one model. Lives on the event loop; its thread reads the vocabulary when it is first needed."""

    def __init__(self, folder: Path, vocabulary: int, end_ids: frozenset[int], config: GrammarConfig) -> None:
        """vocabulary: width of the model's logits. end_ids: ids that may follow a complete text."""
        self._folder = folder
        self._vocabulary = vocabulary
        self._end_ids = sorted(end_ids)
        self._config = config
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._guides: OrderedDict[tuple[str, str], Guide] = OrderedDict()
        self._tokens: LLTokenizer | None = None

    async def compile(self, spec: GrammarSpec, salt: str = "") -> Guide:
        """salt: whose grammar it is; guides are not shared between two. Raises InvalidField naming what the grammar has
        that is wrong, not supported or too complex."""
        key = (salt, spec.text)
        guide = self._guides.get(key)
        if guide is None or guide.exhausted:
            guide = await asyncio.get_running_loop().run_in_executor(self._executor, self._compile, spec)
            self._guides[key] = guide
        self._guides.move_to_end(key)
        while len(self._guides) > self._config.kept:
            self._guides.popitem(last=False)
        return guide

    def _compile(self, spec: GrammarSpec) -> Guide:
        if self._tokens is None:
            self._tokens = self._read_tokens()
        matcher = LLMatcher(self._tokens, spec.text, log_level=0, limits=_limits())
        if matcher.is_error():
            reason = " ".join(matcher.get_error().split())
            raise InvalidField(f"{spec.field}: this cannot be enforced: {reason}", param=spec.field)
        guide = Guide(matcher)
        limit = guide.rehearse()
        if limit is not None:
            raise InvalidField(f"{spec.field}: too complex to be enforced: {limit}", param=spec.field)
        return guide

    def _read_tokens(self) -> LLTokenizer:
        definition = TokenizerFolder.read(self._folder).definition
        added = [{**token, "special": not gives_text(token)} for token in definition.get("added_tokens") or []]
        marked = msgspec.json.encode({**definition, "added_tokens": added}).decode()
        return LLTokenizer(marked, n_vocab=self._vocabulary, eos_token=self._end_ids or None)


def _limits() -> LLParserLimits:
    """A step of a guided sequence may take some milliseconds, and its lexer some tens of megabytes, at most."""
    return LLParserLimits(
        step_lexer_fuel=100_000,
        step_max_items=30_000,
        max_lexer_states=20_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )
