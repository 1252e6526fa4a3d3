"""Runs many questions at once through a model in this process, as its engine would over HTTP."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import torch

from engines.embedded.config import EngineConfig, SchedulerConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.store import KVStore
from engines.embedded.models.linears import Linears
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.linears import dtype_of, linears_of
from engines.embedded.request import Request, Sampling
from engines.tokenizer.tokenizer import Tokenizer
from evals.slices.item import Question
from tools.quantization.defects import SOUND, Defect
from tools.quantization.rounded_linears import RoundedLinears
from tools.quantization.scheme import Scheme


class Asked:
    """One model, sound or with a defect, and the engine that runs it. Belongs to one thread."""

    def __init__(
        self, folder: Path, defect: Defect = SOUND, config: EngineConfig | None = None, scheme: Scheme | None = None
    ) -> None:
        """config: the engine's, with its model replaced; None for the default, which runs 64 answers together.
        scheme: how the model is rounded; None for the rounding of `config`.

        Sets PyTorch's threads. Raises ConfigError for a folder without a supported model.
        """
        config = config or EngineConfig(scheduler=SchedulerConfig(max_batch_tokens=2048))
        config = defect.configured(config, folder)
        torch.set_num_threads(1 if config.threads == "auto" else config.threads)
        self._defect = defect
        rounded = None if scheme is None else RoundedLinears(scheme)
        self.tokenizer = Tokenizer.load(folder)

        def linears(dtype: torch.dtype) -> Linears:
            return defect.linears(linears_of(config, dtype) if rounded is None else rounded.of(dtype))

        model = load_model(folder, dtype_of(config) if rounded is None else rounded.dtype, linears)
        if rounded is not None:
            rounded.finish(model)
        if defect.kept is not None:
            model.keep_rounded(defect.kept)
        store = KVStore(model.config, config.kv, model.dtype, model.config.max_position_embeddings)
        self._engine = Engine(model, store, config, functools.partial(defect.text_stream, self.tokenizer.text_stream))
        self._context_tokens = model.config.max_position_embeddings

    def answers(self, questions: Sequence[Question], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        """Texts in the order of the questions. seed: for sampling at a temperature above 0.

        An answer ends at the end of the context at the latest. Raises ValueError for a question that fills it alone.
        """
        texts = [""] * len(questions)
        end_ids = self._defect.end_ids(self.tokenizer.end_ids)
        for number, question in enumerate(questions):
            prompt = self._defect.ids_of(self.tokenizer, question)
            room = self._context_tokens - len(prompt)
            if room < 1:
                raise ValueError(f"question {number} has {len(prompt)} tokens; the context is {self._context_tokens}")
            sampling = Sampling(
                max_tokens=min(question.max_tokens, room),
                temperature=temperature,
                seed=seed * len(questions) + number,
                stop=() if question.gap is None else question.gap.stop,
                stop_ids=end_ids,
            )
            self._engine.submit(Request(str(number), (tuple(prompt),), sampling))
        while self._engine.busy:
            for delta in self._engine.step():
                texts[int(delta.rid)] += delta.text
        return texts
