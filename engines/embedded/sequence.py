"""One choice of one request while it is served, the only object that passes between the engine's parts."""

from __future__ import annotations

import functools
import random
from typing import Protocol

import torch
from torch import Tensor

from contracts.errors import EngineFailed, InvalidField, SlipstreamError
from engines.embedded.grammar.guide import GuideState
from engines.embedded.output import Finish, Speculated, Timing, TokenLogprob
from engines.embedded.request import Request, Sampling
from engines.embedded.stops import StopMatcher
from engines.tokenizer.healing import OpeningState
from engines.tokenizer.text_stream import TextStream
from speculative.draws import Draws
from speculative.tree import DraftTree


class Lookup(Protocol):
    """The state of a draft source for one sequence."""

    def propose(self, tokens: list[int], count: int) -> list[int]:
        """At most `count` drafts of the next tokens."""
        ...

    def sample(self, tokens: list[int], count: int, temperature: float) -> Draws | None:
        """At most `count` drafts sampled from a distribution; None if the source has none."""
        ...

    def tree(self, tokens: list[int], count: int, depth: int, width: int) -> DraftTree | None:
        """At most `count` drafts, up to `depth` tokens ahead and `width` after each text; None without trees."""
        ...

    def fork(self) -> Lookup:
        """The state for another choice of the prompt."""
        ...


class Sequence:
    """Tokens, the number of them that are computed, and the pages that hold the computed ones.

    tokens   p p p p p p p p o o o
             '--- computed ---'       computed catches up with len(tokens); then a token is sampled
    drafts                         d d d
                                      computed along with the last token; accepted ones become tokens at once
    """

    def __init__(self, request: Request, index: int, text: TextStream, vocabulary: int, arrived_s: float) -> None:
        """index: number of the choice. arrived_s: monotonic seconds."""
        self.prompt_index = index // request.choices_per_prompt
        prompt = request.prompts[self.prompt_index]
        self.request = request
        self.organization = request.organization
        self.index = index
        self.sampling: Sampling = request.sampling
        self.most_tokens = len(prompt) + request.sampling.max_tokens
        """Length of the prompt plus the longest possible response."""
        self.tokens: list[int] = list(prompt)
        self.prompt_tokens = len(prompt)
        self.computed = 0
        self.drafts: list[int] = []
        """Drafts of the next tokens, only for the next step."""
        self.draft_tree: DraftTree | None = None
        """The branches of `drafts`, for the next step; None if each draft follows the one before it."""
        self._pruned = 0
        """Number of rejected drafts of a tree, which are no longer in `drafts`."""
        self.draft_law: Tensor | None = None
        """(at least len(drafts), vocabulary) the drafts' distributions; None if they are a function of the text."""
        self.draft_checks = self.drafts_checked = self.drafts_accepted = 0
        """Number of steps that checked drafts, of the drafts in them, and of those that were accepted."""
        self.lookup: Lookup | None = None
        """The draft source's state, created for the first draft."""
        self.cached_tokens = 0
        """Prompt tokens found in the cache at the first admission."""
        self.forked = False
        """Whether it began from another choice's computed prompt, without its own search of the cache."""
        self.pages: list[int] = []
        self.most_pages = 0
        """Number of pages that admission reserved, allocated or not."""
        self.running = False
        self.finish: Finish | None = None
        self.text = text
        if request.continues:
            text.follow(prompt)
        self.stops = StopMatcher(request.sampling.stop)
        self.preemptions = 0
        self.order = 0
        """Number in the order of arrival, set by the queue."""
        self.due_s = 0.0
        """Arrival, moved forward by priority. The queue sets it and serves the smallest first."""
        self.arrived_s = arrived_s
        self.admitted_s: float | None = None
        self.prompt_ended_s: float | None = None
        """Time at which the whole prompt was first computed."""
        self.piece_began_s = arrived_s
        """Time of the last admission, or the end of the prompt's last chunk."""
        self.last_token_s: float | None = None
        self.emitted_s = arrived_s
        """Time of the last delta to the client."""
        self.is_broken = False
        """Whether the model computed NaN or infinity."""

        sampling = request.sampling
        # its own generator, so that the text depends on the seed and never on the rest of the batch
        seed = sampling.seed
        self._random = random.Random() if seed is None else random.Random(f"{seed}:{index}")  # noqa: S311
        self._coins: list[float] = []
        """Numbers drawn for the next tokens, in order."""
        self._next_coin = 0
        self._depths: list[int] = []
        """Depths of the text's end and of each draft, if the drafts branch."""
        penalised = bool(sampling.frequency_penalty or sampling.presence_penalty)
        self.counts: Tensor | None = torch.zeros(vocabulary) if penalised else None
        """How often each id was generated, if a penalty needs it."""
        self.seen: Tensor | None = None
        """Whether each id is in the prompt or the output, if the repetition penalty needs it."""
        if sampling.repetition_penalty != 1:
            self.seen = torch.zeros(vocabulary, dtype=torch.bool)
            self.seen[torch.tensor(self.tokens)] = True
        self.prompt_scores: list[TokenLogprob] = []
        """Scores of the prompt's tokens from the second on, if `score_prompt` requests them."""
        self._took_scores = False
        self.pooled: Tensor | None = None
        """The sum or the last of the final states so far, if the model computes vectors."""
        self.pooled_tokens = 0
        """Number of tokens in `pooled`."""
        self.guide: GuideState | None = request.guide.start() if request.guide is not None else None
        """Position of the output in the grammar. Like `tokens`, it survives a preemption."""
        opening = request.opening
        self.opening: OpeningState | None = None if opening is None else opening.start()
        """Text with which the output must still begin; None if there is none."""
        self._undelivered = 0 if opening is None else len(opening.text)
        """Number of characters of the output's beginning that are not delivered."""
        self.opening_tokens = 0
        """Number of tokens that only repeat the required beginning of the output."""
        self.bias: Tensor | None = _bias(sampling.logit_bias, vocabulary) if sampling.logit_bias else None
        """Added to the logits; never changed, because the request's choices share it."""

        greedy = sampling.temperature == 0 or sampling.top_k == 1
        ids = sorted(sampling.stop_ids) if sampling.min_tokens else []
        self.end_ids = [id_ for id_ in ids if 0 <= id_ < vocabulary]
        """Ids that may not be picked before `min_tokens`."""
        penalised = penalised or self.seen is not None
        adjusted = bool(self.bias is not None or penalised or self.guide is not None or self.end_ids)
        self._greedy_only = greedy and not adjusted and sampling.logprobs is None

    @property
    def pending(self) -> int:
        """Number of tokens that are not computed yet."""
        return len(self.tokens) - self.computed

    @property
    def greedy_only(self) -> bool:
        """Whether only the likeliest token of the logits is needed."""
        return self._greedy_only and self.opening is None

    @property
    def read_tokens(self) -> int:
        """Prompt tokens that were computed or found in the cache before the step under way."""
        return max(self.computed, self.cached_tokens) if self.is_new else self.prompt_tokens

    @property
    def is_new(self) -> bool:
        """Whether no token has been generated yet."""
        return len(self.tokens) == self.prompt_tokens

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def most_cached(self) -> int:
        """Maximum number of tokens that may come from the cache. The last token is always computed, because the next
        one is sampled from its logits, and so are tokens that must still be scored or added to a vector."""
        limit = len(self.tokens) - 1
        if self.sampling.pools_all:
            limit = min(limit, self.pooled_tokens)
        if self.sampling.score_prompt and self.prompt_tokens - 1 > len(self.prompt_scores):
            limit = min(limit, len(self.prompt_scores))
        return limit

    def unscored(self, start: int, stop: int) -> range:
        """The positions of start..stop-1 whose next token belongs to the prompt and has no score yet."""
        return range(max(start, len(self.prompt_scores)), min(stop, self.prompt_tokens - 1))

    def take_prompt_scores(self) -> list[TokenLogprob]:
        """Return `prompt_scores` the first time, and [] afterwards."""
        taken, self._took_scores = self._took_scores, True
        return [] if taken else self.prompt_scores

    @property
    def draws_drafts(self) -> bool:
        """Whether drafts may be sampled, because sampled drafts are accepted more often than the likeliest ones.

        Not with a seed, which would give another text without drafts. Not with a grammar, because forbidden drafts are
        cut off beforehand, and the cut must not depend on the samples.
        """
        sampling = self.sampling
        plain = sampling.temperature > 0 and sampling.top_k != 1
        return plain and sampling.seed is None and self.guide is None

    def fresh_coins(self, count: int) -> list[float]:
        """Draw uniform numbers in [0, 1) that are used for nothing else."""
        return [self._random.random() for _ in range(count)]

    def draw(self) -> float:
        """Draw a uniform number in [0, 1) from this sequence's generator, for the next token, then for the one after
        it.

        `settle` reports how many of these tokens were kept. The other numbers are used again, so that the n-th token
        always has the n-th number, drafted or not.
        """
        at = self._next_coin
        self._next_coin += 1
        if self.draft_tree is not None and self.drafts:
            # at most one of the nodes of a depth is kept
            at = self._depths[at]
        while at >= len(self._coins):
            self._coins.append(self._random.random())
        return self._coins[at]

    def settle(self, emitted: int) -> None:
        """Record that the step added `emitted` tokens. Its other draws and its drafts are void."""
        del self._coins[:emitted]
        self._next_coin = 0
        self.forget_drafts()

    def forget_drafts(self) -> None:
        """Drop all drafts, checked or not."""
        self.drafts, self.draft_law, self.draft_tree = [], None, None
        self._pruned = 0

    def branch(self, tree: DraftTree) -> None:
        """Set drafts that branch. The last ones may be dropped before they are checked."""
        self.drafts, self.draft_tree = list(tree.ids), tree
        self._depths = tree.depths()

    def keep_branch(self, path: list[int]) -> None:
        """Keep only the accepted path of branching drafts, as a chain."""
        self._pruned = len(self.drafts) - len(path)
        self.drafts, self.draft_tree = [self.drafts[node] for node in path], None

    @property
    def checked_drafts(self) -> int:
        """Number of drafts that the step has computed."""
        return len(self.drafts) + self._pruned

    @property
    def takes_trees(self) -> bool:
        """Whether drafts may branch: not if a penalty, a grammar or the number of tokens makes the next token's logits
        depend on the branch."""
        return self.counts is None and self.seen is None and self.guide is None and not self.end_ids

    def count_drafts(self, accepted: int) -> None:
        """Count the drafts of a check."""
        self.draft_checks += 1
        self.drafts_checked += self.checked_drafts
        self.drafts_accepted += accepted

    @property
    def speculated(self) -> Speculated | None:
        """The speculation counts; None if no drafts were checked."""
        if not self.draft_checks:
            return None
        return Speculated(self.draft_checks, self.drafts_checked, self.drafts_accepted)

    @property
    def timing(self) -> Timing | None:
        """The phases before the first token; None if the prompt has not been computed."""
        if self.admitted_s is None or self.prompt_ended_s is None:
            return None
        return Timing(
            self.admitted_s - self.arrived_s,
            self.prompt_ended_s - self.admitted_s,
            self.preemptions,
            self.request.grammar_s,
        )

    def may_end(self, ahead: int) -> bool:
        """Whether an end id may be picked after the first `ahead` drafts."""
        return self.completion_tokens + ahead >= self.sampling.min_tokens

    def counts_after(self, ahead: int) -> Tensor | None:
        """`counts` if the first `ahead` drafts are accepted."""
        if self.counts is None or not ahead:
            return self.counts
        return self.counts + torch.bincount(torch.tensor(self.drafts[:ahead]), minlength=self.counts.shape[0])

    def seen_after(self, ahead: int) -> Tensor | None:
        """`seen` if the first `ahead` drafts are accepted."""
        if self.seen is None or not ahead:
            return self.seen
        seen = self.seen.clone()
        seen[torch.tensor(self.drafts[:ahead])] = True
        return seen

    def append(self, id_: int) -> str:
        """Add a sampled token, set `finish` if it ends the sequence, and return the text to send. id_: a token or
        `NO_TOKEN`."""
        if id_ < 0 or self.is_broken:
            self.is_broken = True
            self.finish = _error(EngineFailed("The model computed NaN or infinity; check its weights."))
            return ""
        if not self.sampling.max_tokens:
            self.finish = Finish("length")
            return ""
        self.tokens.append(id_)
        if self.counts is not None:
            self.counts[id_] += 1
        if self.seen is not None:
            self.seen[id_] = True
        # if the mask could not be computed, this token may be any token, even an end token
        if self.guide is not None and self.guide.error is not None:
            self.finish = self._guide_finish()
            return self._rest()
        if id_ in self.sampling.stop_ids:
            self.finish = Finish("stop", id_)
            return self._rest()
        if self.opening is not None:
            self.opening_tokens += not self.opening.advance(id_)
            if self.opening.finished:
                self.opening = None
        text, matched = self.stops.push(self._told(self.text.step(id_)))
        if matched is not None:
            self.finish = Finish("stop", matched)
            return text
        if self.guide is not None:
            self.guide.advance(id_)
            self.finish = self._guide_finish()
        if self.finish is None and len(self.tokens) >= self.most_tokens:
            self.finish = Finish("length")
        return text if self.finish is None else text + self._rest()

    def _guide_finish(self) -> Finish | None:
        assert self.guide is not None
        if self.guide.error is not None:
            return _error(InvalidField(f"The output can no longer follow its format: {self.guide.error}"))
        return Finish("stop") if self.guide.finished else None

    def abort(self, error: SlipstreamError | None = None) -> str:
        """End the sequence from outside; return the text that was held back. error: the error for the client."""
        self.finish = Finish("abort") if error is None else _error(error)
        return self._rest()

    @property
    def ended_by_id(self) -> bool:
        """Whether the last token is an end token or a stop id, which is not part of the text and not reported."""
        finish = self.finish
        return finish is not None and finish.reason == "stop" and isinstance(finish.matched, int)

    def _told(self, text: str) -> str:
        """The part of the next text after the required beginning of the output."""
        rest = text[self._undelivered :]
        self._undelivered -= len(text) - len(rest)
        return rest

    def _rest(self) -> str:
        text, matched = self.stops.push(self._told(self.text.flush()))
        return text if matched is not None else text + self.stops.flush()


@functools.lru_cache(maxsize=1)
def _bias(biases: tuple[tuple[int, float], ...], vocabulary: int) -> Tensor:
    """The bias of all choices of a request, which are created one after the other."""
    bias = torch.zeros(vocabulary)
    for id_, value in biases:
        bias[id_] = value
    return bias


def _error(error: SlipstreamError) -> Finish:
    return Finish("error", error=error)
