"""The sources of drafts, by the names in `speculation.method`."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded.drafter import DraftSource
from engines.embedded.models.llama import Llama
from engines.embedded.sequence import Sequence
from speculative.config import SpeculationConfig
from speculative.eagle.checkpoint import load
from speculative.eagle.drafts import EagleDrafts
from speculative.eagle.head import EagleHead
from speculative.ngram import NgramDrafts


class NgramSource:
    """Drafts from the sequence's own text."""

    layers: tuple[int, ...] = ()

    def __init__(self, config: SpeculationConfig) -> None:
        self._config = config

    def begin(self, sequence: Sequence) -> None:
        sequence.lookup = NgramDrafts(self._config.ngram_least, self._config.ngram_most)

    def learn(self, sequence: Sequence, start: int, states: Tensor) -> None:
        """Ignore the states: drafts depend only on the text."""


class EagleSource:
    """Drafts by a head that reads the target's hidden states."""

    def __init__(self, head: EagleHead, model: Llama) -> None:
        """Raises ConfigError if the head does not match the model."""
        config, target = head.config, model.config
        self.layers: tuple[int, ...] = config.eagle_aux_hidden_state_layer_ids
        for name, has, wants in (
            ("vocab_size", target.vocab_size, config.vocab_size),
            ("hidden_size", target.hidden_size, config.hidden_size),
        ):
            if has != wants:
                raise ConfigError(f"speculation.head: made for {name} {wants}, the model has {has}")
        if max(self.layers) >= target.num_hidden_layers:
            raise ConfigError(f"speculation.head: wants layers {self.layers} of {target.num_hidden_layers}")
        self._head = head
        self._embedding = model.embedding

    def begin(self, sequence: Sequence) -> None:
        sequence.lookup = EagleDrafts(self._head, self._embedding)

    def learn(self, sequence: Sequence, start: int, states: Tensor) -> None:
        if sequence.lookup is None:
            self.begin(sequence)
        assert isinstance(sequence.lookup, EagleDrafts)
        sequence.lookup.learn(start, states)


HEAD_FOLDER = "draft"
"""Subfolder of a model's folder that holds the model's own head."""


def head_folder(config: SpeculationConfig, model_folder: Path | None) -> Path | None:
    """The folder of the configured head, None if none is configured. Raises ConfigError if the folder is missing."""
    if config.method != "eagle":
        return None
    if config.head:
        return Path(config.head)
    if model_folder is not None and (model_folder / HEAD_FOLDER / "config.json").exists():
        return model_folder / HEAD_FOLDER
    raise ConfigError(
        f"speculation.head: method eagle needs the folder of a head; the model's folder has none named {HEAD_FOLDER}",
        param="speculation.head",
    )


def make_source(config: SpeculationConfig, model: Llama, model_folder: Path | None = None) -> DraftSource | None:
    """The configured source, or None. Raises ConfigError that names the fault in the head's folder."""
    if not config.drafts:
        return None
    if config.method == "ngram":
        if config.shape == "tree":
            raise ConfigError(
                "speculation.shape: tree needs method eagle; n-grams draft a single chain. Leave it at chain.",
                param="speculation.shape",
            )
        return NgramSource(config)
    folder = head_folder(config, model_folder)
    assert folder is not None
    return EagleSource(load(folder, model.dtype).to(model.device), model)
