"""One choice of one request while it is served: the only object that travels between the engine's parts."""

from __future__ import annotations

import random
from typing import Protocol

import torch
from torch import Tensor

from engines.embedded.output import Finish
from engines.embedded.request import Request, Sampling
from engines.embedded.stops import StopMatcher
from speculative.ngram import NgramDrafts


class TextStream(Protocol):
    """Decodes ids into text, never splitting a character."""

    def step(self, id_: int) -> str:
        """The text this id completes."""
        ...

    def flush(self) -> str:
        """What is still held back."""
        ...


class Sequence:
    """Tokens, how many of them are computed, and the pages that hold the computed ones.

    tokens   p p p p p p p p o o o
             '--- computed ---'       computed catches up with len(tokens); then a token is sampled
    drafts                         d d d
                                      guesses computed along with the last token; right ones become tokens at once
    """

    def __init__(self, request: Request, index: int, text: TextStream, vocabulary: int, arrived_s: float) -> None:
        """index: number of the choice. arrived_s: monotonic seconds."""
        self.prompt_index = index // request.choices_per_prompt
        prompt = request.prompts[self.prompt_index]
        self.request = request
        self.index = index
        self.sampling: Sampling = request.sampling
        self.tokens: list[int] = list(prompt)
        self.prompt_tokens = len(prompt)
        self.computed = 0
        self.drafts: list[int] = []
        """Guesses at the next tokens, for the coming step only."""
        self.lookup: NgramDrafts | None = None
        """Where guesses come from; made when the first is wanted."""
        self.cached_tokens = 0
        """Prompt tokens that were found in the cache when it was first admitted."""
        self.forked = False
        """It began from another choice's computed prompt: nothing was looked up for it."""
        self.pages: list[int] = []
        self.most_pages = 0
        """Pages that admission promised it, taken or not yet."""
        self.running = False
        self.finish: Finish | None = None
        self.text = text
        self.stops = StopMatcher(request.sampling.stop)
        self.preemptions = 0
        self.order = 0
        """Place in the order of arrival; set by the queue."""
        self.due_s = 0.0
        """Arrival, moved forward by priority; set by the queue, which serves the smallest first."""
        self.arrived_s = arrived_s
        self.admitted_s: float | None = None
        self.last_token_s: float | None = None

        sampling = request.sampling
        # a generator of its own: the text depends on the seed, never on what else is in the batch
        seed = sampling.seed
        self._random = random.Random() if seed is None else random.Random(f"{seed}:{index}")  # noqa: S311
        self._coins: list[float] = []
        """Numbers drawn for the tokens to come, the first for the next token."""
        self._next_coin = 0
        penalised = bool(sampling.frequency_penalty or sampling.presence_penalty)
        self.counts: Tensor | None = torch.zeros(vocabulary) if penalised else None
        """How often each id was generated, where a penalty needs it."""
        self.bias: Tensor | None = None
        if sampling.logit_bias:
            self.bias = torch.zeros(vocabulary)
            for id_, value in sampling.logit_bias:
                self.bias[id_] = value

    @property
    def pending(self) -> int:
        """Tokens not computed yet."""
        return len(self.tokens) - self.computed

    @property
    def is_new(self) -> bool:
        """Nothing was generated yet."""
        return len(self.tokens) == self.prompt_tokens

    @property
    def completion_tokens(self) -> int:
        """Tokens generated."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def most_tokens(self) -> int:
        """Its length if it generates all it may."""
        return self.prompt_tokens + self.sampling.max_tokens

    def draw(self) -> float:
        """A uniform number in [0, 1) of this sequence's own generator: for the next token, then for the one after it.

        `settle` says how many of those tokens came to be. The others' numbers are drawn again, so that the n-th token
        always has the n-th number, guessed or not.
        """
        if self._next_coin == len(self._coins):
            self._coins.append(self._random.random())
        self._next_coin += 1
        return self._coins[self._next_coin - 1]

    def settle(self, emitted: int) -> None:
        """The step added `emitted` tokens; its other draws and its drafts are void."""
        del self._coins[:emitted]
        self._next_coin = 0
        self.drafts = []

    def counts_after(self, ahead: int) -> Tensor | None:
        """`counts` as they are if the first `ahead` drafts are right."""
        if self.counts is None or not ahead:
            return self.counts
        return self.counts + torch.bincount(torch.tensor(self.drafts[:ahead]), minlength=self.counts.shape[0])

    def append(self, id_: int) -> str:
        """Add a sampled token, set `finish` if it ends the sequence, and return the text that may be sent."""
        self.tokens.append(id_)
        if self.counts is not None:
            self.counts[id_] += 1
        if id_ in self.sampling.stop_ids:
            self.finish = Finish("stop", id_)
            return self._rest()
        text, matched = self.stops.push(self.text.step(id_))
        if matched is not None:
            self.finish = Finish("stop", matched)
        elif self.completion_tokens >= self.sampling.max_tokens:
            self.finish = Finish("length")
            return text + self._rest()
        return text

    def abort(self) -> str:
        """End it from outside; returns the text that was held back."""
        self.finish = Finish("abort")
        return self._rest()

    def _rest(self) -> str:
        text, matched = self.stops.push(self.text.flush())
        return text if matched is not None else text + self.stops.flush()
