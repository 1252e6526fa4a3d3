"""The models as the gateway serves them: desired state joined with drivers and loaded tokenizers.

A new version is loaded beside the old one and swapped in whole; requests see one or the other, never a mixture.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from contracts.desired_state import DesiredState, Model
from contracts.errors import ConfigError, ModelNotFound
from engines import drivers
from engines.tokenizer.config import TokenizingConfig
from engines.tokenizer.fair_executor import FairExecutor
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.openai.prepare import Target

logger = logging.getLogger(__name__)


class Fleet:
    """Answers which model a name means and how to count for it. Owns the threads that tokenize, for all models."""

    def __init__(self, tokenizing: TokenizingConfig | None = None) -> None:
        """None: the defaults."""
        self._executor = FairExecutor(tokenizing)
        self._targets: dict[str, Target] = {}
        self._tokenizers: dict[str, OffLoopTokenizer] = {}
        self.models: tuple[Model, ...] = ()
        self.version = 0

    async def load(self, state: DesiredState) -> None:
        """Take over a version. A model whose tokenizer or driver cannot be loaded raises ConfigError; the old version
        then stays."""
        targets: dict[str, Target] = {}
        tokenizers: dict[str, OffLoopTokenizer] = {}
        for model in state.models:
            pool = state.pool(model.pool)
            if pool is None:
                raise ConfigError(f"models.{model.name}.pool: no pool named {model.pool!r}")
            tokenizer = None
            if model.tokenizer is not None:
                tokenizer = self._tokenizers.get(model.tokenizer) or tokenizers.get(model.tokenizer)
                if tokenizer is None:
                    loaded = await asyncio.to_thread(Tokenizer.load, Path(model.tokenizer))
                    tokenizer = OffLoopTokenizer(loaded, self._executor)
                tokenizers[model.tokenizer] = tokenizer
            target = Target(model, drivers.get(pool.driver).capabilities, tokenizer)
            for name in (model.name, *model.aliases):
                targets[name] = target
        self._targets, self._tokenizers = targets, tokenizers
        self.models, self.version = state.models, state.version

    def close(self) -> None:
        """Stop the tokenizers' threads; prompts that wait for one are refused."""
        self._executor.close()

    def find(self, name: str) -> Target:
        """Raises ModelNotFound, naming what there is."""
        target = self._targets.get(name)
        if target is None:
            names = ", ".join(model.name for model in self.models) or "none yet"
            raise ModelNotFound(f"The model '{name}' does not exist. Available: {names}.", param="model")
        return target
