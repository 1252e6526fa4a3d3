"""Compiles grammars off the event loop and keeps the newest, as clients send the same schema again and again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import WeakValueDictionary

from llguidance import LLMatcher, LLTokenizer

from contracts.errors import InternalError, InvalidField
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.guide import Guide
from engines.embedded.grammar.spec import GrammarSpec
from engines.embedded.grammar.trial import Trial, TrialFailed, Vocabulary, limits


class GrammarCompiler:
    """The grammars of one model. Lives on the event loop; its thread reads the vocabulary when it is first needed."""

    def __init__(self, folder: Path, vocabulary: int, end_ids: frozenset[int], config: GrammarConfig) -> None:
        """vocabulary: width of the model's logits. end_ids: ids that may follow a complete text."""
        self._vocabulary = Vocabulary(str(folder), vocabulary, sorted(end_ids))
        self._trial = Trial(self._vocabulary, config.compile_timeout_s)
        self._config = config
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._guides: OrderedDict[tuple[str, str], Guide] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By salt, while somebody waits or compiles."""
        self._tokens: LLTokenizer | None = None

    async def compile(self, spec: GrammarSpec, salt: str = "") -> Guide:
        """salt: whose grammar it is; guides are not shared between two, and each has one compiled at a time: who has
        many waits behind them alone. Raises InvalidField naming what the grammar has that is wrong, not supported or
        too complex, which taking longer than `compile_timeout_s` is."""
        key = (salt, spec.text)
        turn = self._turns.get(salt)
        if turn is None:
            turn = self._turns[salt] = asyncio.Lock()
        async with turn:
            guide = self._guides.get(key)
            if guide is None or guide.exhausted:
                guide = await asyncio.get_running_loop().run_in_executor(self._executor, self._compile, spec)
                self._guides[key] = guide
            self._guides.move_to_end(key)
        while len(self._guides) > self._config.kept:
            self._guides.popitem(last=False)
        return guide

    def _compile(self, spec: GrammarSpec) -> Guide:
        try:
            verdict = self._trial.judge(spec.text)
        except TrialFailed as error:
            raise InternalError(
                "The engine could not compile a grammar; its log says why.", detail=str(error)
            ) from None
        if verdict.wrong:
            raise InvalidField(f"{spec.field}: this cannot be enforced: {verdict.wrong}", param=spec.field)
        if verdict.limit:
            raise InvalidField(f"{spec.field}: too complex to be enforced: {verdict.limit}", param=spec.field)
        if self._tokens is None:
            self._tokens = self._vocabulary.read()
        return Guide(LLMatcher(self._tokens, spec.text, log_level=0, limits=limits()))
