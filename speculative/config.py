"""Settings of speculation."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class SpeculationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The source of drafts, and the number of drafts verified at once. Speculation never changes a text."""

    method: Literal["auto", "off", "ngram", "eagle"] = "auto"
    """auto: ngram for engines that `up` starts and whose models are all of the tier `autocomplete`, off for all others.
    ngram: draft the tokens that followed the same tokens earlier in the prompt or output. eagle: draft with a small
    trained head that reads the model's hidden states."""

    head: str = ""
    """Folder of the head for `eagle`, with config.json and model.safetensors. Empty: `draft` in the model's folder."""

    shape: Fixed[Literal["chain", "tree"]] = "chain"
    """For `eagle`. chain: drafts that follow one another. tree: several drafts for each token, with the likeliest
    branches verified together. A tree accepts more tokens per step but computes more, and on a CPU it requires `kernels
    = "torch"`. Requests with penalties or a grammar, and sampled requests without a seed, get chains."""

    tree_width: Fixed[Annotated[int, Meta(ge=1, le=16)]] = 3
    """Maximum number of drafts for one token of a tree."""

    tree_depth: Fixed[Annotated[int, Meta(ge=1, le=16)]] = 4
    """Maximum number of tokens that a tree drafts ahead."""

    max_drafts: Fixed[Annotated[int, Meta(ge=1, le=32)]] = 4
    """Maximum number of tokens drafted per sequence and step, over all branches of a tree."""

    ngram_least: Fixed[Annotated[int, Meta(ge=1, le=16)]] = 2
    """Minimum number of last tokens that must have occurred before."""

    ngram_most: Fixed[Annotated[int, Meta(ge=1, le=16)]] = 4
    """Maximum number of last tokens compared. Longer matches are tried first."""

    governed: bool = True
    """Turn speculation off at batch sizes where measurements show that it costs more than it saves."""

    probe_steps: Fixed[Annotated[int, Meta(ge=8)]] = 256
    """Minimum number of steps between two short trials of the mode that is not in use. Trials of speculation waste at
    most a twentieth of the time."""

    @property
    def drafts(self) -> bool:
        """Whether an engine with these settings drafts."""
        return self.method not in ("auto", "off")

    @property
    def steps(self) -> int:
        """Maximum number of tokens that one step drafts ahead; 0 if the engine does not draft."""
        if not self.drafts:
            return 0
        return min(self.max_drafts, self.tree_depth) if self.shape == "tree" else self.max_drafts
