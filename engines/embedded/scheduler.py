"""Decides what the next step computes.

There is one rule and no prefill or decode phase: every running sequence has tokens that are not computed yet, and a
step computes some of them (the idea is vLLM V1's). A sequence that generates has one, and its drafts; a new prompt has
many and takes the rest of the step's budget, so a long prompt is cut into chunks by the same rule.

A sequence starts when it finds a slot and its reserved pages. Organizations take turns. An organization below its share
of memory and slots may take those that others hold above theirs (`shares.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from engines.embedded.config import SchedulerConfig
from engines.embedded.kv.pages import PagePool
from engines.embedded.kv.radix import RadixCache
from engines.embedded.sequence import Sequence
from engines.embedded.shares import Shares
from engines.embedded.step_costs import StepCosts, prompt_budget, running_limit
from engines.embedded.waiting import WaitingQueue

SHARE_BEHIND = 4
"""One part in this many of a step is withheld from the oldest prompt for the prompts after it."""
CANDIDATES = 8
"""Sequences from the front of an organization's line that are tried when those in front of them do not fit."""


class Work(NamedTuple):
    """Compute the next `tokens` tokens of one sequence."""

    sequence: Sequence
    tokens: int
    drafts: int = 0
    """Number of drafts among them; they come last."""
    forks: tuple[Sequence, ...] = ()
    """Choices of the same prompt that begin where this work ends: they share its pages and sample from its logits."""

    def up_to(self, position: int) -> Work:
        """The part of it up to this token of the sequence."""
        tokens = min(position - self.sequence.computed, self.tokens - self.drafts)
        return self._replace(tokens=tokens, drafts=0)


@dataclass(slots=True)
class StepPlan:
    """The work of one step. Empty only when no sequence runs or waits."""

    works: list[Work] = field(default_factory=list)
    """Each has its pages."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    """Pages to copy, from and to, in this order and before anything is computed."""


class Scheduler:
    """Owns the queue, the running list and the pages of both."""

    def __init__(
        self, config: SchedulerConfig, pages: PagePool, cache: RadixCache, page_tokens: int, clock: Callable[[], float]
    ) -> None:
        """clock: monotonic seconds."""
        self.waiting = WaitingQueue(config.ageing_s)
        self.running: list[Sequence] = []
        self.costs = StepCosts()
        """Measured costs of tokens, which bound the steps."""
        self.preemptions = 0
        """Sequences sent back to the queue for lack of pages."""
        self.yielded = 0
        """Sequences sent back to the queue for another organization, which holds less."""
        self._config = config
        self._pages = pages
        self._cache = cache
        self._page_tokens = page_tokens
        self._clock = clock
        self._gathered_from_s = math.inf
        """Sequences due at this time or later do not start: memory is being gathered for an earlier one."""

    @property
    def step_tokens(self) -> int:
        """The most tokens that the next step may compute."""
        return self._step_tokens(sum(sequence.pending == 1 for sequence in self.running))

    def _step_tokens(self, generating: int) -> int:
        """No stream waits for a step without generating sequences, so it may be as large as any."""
        most = self._config.max_batch_tokens
        if not generating:
            return most
        spent_s = self.costs.generation_s(generating)
        return min(generating + prompt_budget(self._config.pause_ms / 1e3, spent_s, self.costs.token_s, most), most)

    @property
    def _most_running(self) -> int:
        spent_s = self.costs.generation_s(len(self.running))
        return running_limit(self._config.pause_ms / 1e3, spent_s, len(self.running), self._config.max_running)

    @property
    def promised_pages(self) -> int:
        """Pages reserved for running sequences that do not own them yet."""
        return sum(max(sequence.most_pages - len(sequence.pages), 0) for sequence in self.running)

    @property
    def used_pages(self) -> int:
        """Pages that running sequences own; pages that only the cache holds are as good as free."""
        return self._pages.pinned

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence; the next `schedule` may start it."""
        self.waiting.push(sequence)

    def schedule(self) -> StepPlan:
        """The work of the next step: sequences that generate first, the oldest prompt except for a share, new
        sequences, the other prompts, the shortest first, and last background prompts."""
        plan = StepPlan()
        works: dict[Sequence, int] = {}
        preemptions = self.preemptions
        generating = [sequence for sequence in self.running if sequence.pending == 1]
        budget = limit = self._step_tokens(len(generating))
        catching_up = [sequence for sequence in self.running if sequence.pending > 1]
        in_background = [sequence for sequence in catching_up if sequence.request.priority < 0]
        waited_for = [sequence for sequence in catching_up if sequence not in in_background]
        self._cut_drafts(generating, budget)
        oldest, younger = waited_for[:1], sorted(waited_for[1:], key=lambda sequence: sequence.pending)
        # a sequence with a few tokens to compute must not wait for the thousands of another
        kept = limit // SHARE_BEHIND if younger or self.waiting else 0
        for sequence in [*generating, *oldest]:
            given = max(budget - kept, 0) if sequence in oldest else budget
            if given and sequence.running:  # an earlier one may have preempted it
                budget -= self._give(sequence, given, works, plan)
        self._gathered_from_s = math.inf
        # pages freed by a preemption are for running sequences: admitting now would only preempt again
        if self.preemptions == preemptions:
            while budget and (admitted := self._admit(plan, works)) is not None:
                # `_admit` may have preempted sequences of this step
                budget = limit - sum(works.values())
                budget -= self._give(admitted, budget, works, plan)
        for sequence in younger:
            if budget and sequence.running:
                budget -= self._give(sequence, budget, works, plan)
        for sequence in oldest:  # the rest of the budget, also where generating sequences left it no share
            if budget and sequence.running:
                budget += works.pop(sequence, 0)
                budget -= self._give(sequence, budget, works, plan)
        for sequence in in_background:  # background work gets the rest
            if budget and sequence.running:
                budget -= self._give(sequence, budget, works, plan)
        plan.works = [Work(s, tokens, len(s.drafts), self._fork(s, tokens)) for s, tokens in works.items()]
        return plan

    def computed(self, work: Work) -> None:
        """A work of the plan was done: its prompt is cached from now on."""
        sequence, tokens = work.sequence, work.tokens - work.drafts
        sequence.computed += tokens
        if tokens > 1 and not sequence.is_broken:
            self._cache.insert(sequence.request.namespace, sequence.tokens[: sequence.computed], sequence.pages)
        for fork in work.forks:
            fork.computed = sequence.computed
            fork.prompt_scores = list(sequence.prompt_scores)

    def remove(self, sequence: Sequence) -> None:
        """Forget a running sequence. Its pages stay in the cache until they are needed."""
        sequence.running = False
        sequence.drafts = []
        self.running.remove(sequence)
        for follower in self.waiting.unpark(sequence):
            self.waiting.push(follower)
        namespace, computed = sequence.request.namespace, sequence.tokens[: sequence.computed]
        if not sequence.is_broken:
            self._cache.insert(namespace, computed, sequence.pages)
            self._cache.insert_rest(namespace, computed, sequence.pages)
        self._cache.release(sequence.pages)
        sequence.pages = []

    def _admit(self, plan: StepPlan, works: dict[Sequence, int]) -> Sequence | None:
        """Start the next waiting sequence that fits; None: none does. Removes preempted sequences from `works`.

        Sequences that are due within `ageing_s` after one that does not fit may overtake it. The limit holds in its
        own line, and in all lines if its organization runs nothing or stays within its share with it. Otherwise the
        organization waits for its own responses to end, and blocks no other.
        """
        if not self.waiting:
            return None
        self._gathered_from_s = math.inf
        shares = self._shares()
        has_place = len(self.running) < self._most_running
        unpromised = self._unpromised_pages if has_place else 0
        for line in self.waiting.lines(shares.held):
            passed_until_s = math.inf
            for due_s, _, sequence in line[:CANDIDATES]:
                if due_s >= min(passed_until_s, self._gathered_from_s):
                    break
                most_pages = self._most_pages(sequence)
                entitled = shares.entitles(sequence, most_pages)
                # the cache may hold this many of its pages
                least_pages = most_pages - sequence.most_cached // self._page_tokens
                may_fit = entitled or not self.running or (has_place and least_pages <= unpromised)
                if may_fit and self._starts(sequence, most_pages, shares if entitled else None, plan, works):
                    return sequence
                passed_until_s = min(passed_until_s, due_s + self._config.ageing_s)
                if entitled or shares.holds_nothing(sequence.organization):
                    self._gathered_from_s = min(self._gathered_from_s, due_s + self._config.ageing_s)
        return None

    def _starts(
        self,
        sequence: Sequence,
        most_pages: int,
        shares: Shares | None,
        plan: StepPlan,
        works: dict[Sequence, int],
    ) -> bool:
        """Start a waiting sequence if its reservation fits. shares: None: no other sequence is preempted for it."""
        found = self._cache.match(sequence.request.namespace, sequence.tokens, sequence.most_cached)
        cached = len(found) * self._page_tokens
        lacking = most_pages - len(found) - self._unpromised_pages if self.running else 0
        if lacking > 0 or len(self.running) >= self._most_running:
            leaving = [] if shares is None else shares.yielding(sequence, self.running, self._own_pages, lacking)
            for other in leaving:
                works.pop(other, None)
                self._preempt(other)
                self.yielded += 1
            if not leaving:
                self._cache.release(found)
                return False
        first_step = min(len(sequence.tokens), cached + self._config.max_batch_tokens)
        if not self._available(self._pages_for(first_step) - len(found)):
            self._cache.release(found)
            return False
        self.waiting.take(sequence)
        begun = self._cache.begin_page(sequence.request.namespace, sequence.tokens, found, sequence.most_cached)
        if begun is not None:
            plan.copies.append((begun.source, begun.page))
            found.append(begun.page)
            cached += begun.tokens
        sequence.pages, sequence.computed = found, cached
        if sequence.admitted_s is None:
            sequence.cached_tokens = cached
        if sequence.is_new and sequence.request.choices_per_prompt > 1:
            self.waiting.park(sequence)
        self._start(sequence, most_pages)
        return True

    def _fork(self, leader: Sequence, tokens: int) -> tuple[Sequence, ...]:
        """Start the choices that wait for the leader's prompt, if this work ends it; choices that do not fit return to
        the queue and start from the cached pages later."""
        if leader.computed + tokens < len(leader.tokens):
            return ()
        forks: list[Sequence] = []
        for follower in self.waiting.unpark(leader):
            most_pages = self._most_pages(follower)
            # one page more than is missing: the last one, which all share until they write into it
            missing = most_pages - len(leader.pages) + 1
            has_room = len(self.running) < self._config.max_running and missing <= self._unpromised_pages
            if not has_room or follower.due_s >= self._gathered_from_s:
                self.waiting.push(follower)
                continue
            follower.pages = list(leader.pages)
            self._pages.share(follower.pages)
            follower.cached_tokens, follower.forked = leader.cached_tokens, True
            self._start(follower, most_pages)
            forks.append(follower)
        return tuple(forks)

    def _start(self, sequence: Sequence, most_pages: int) -> None:
        sequence.most_pages = most_pages
        sequence.running = True
        sequence.piece_began_s = self._clock()
        if sequence.admitted_s is None:
            sequence.admitted_s = sequence.piece_began_s
        self.running.append(sequence)

    def _give(self, sequence: Sequence, budget: int, works: dict[Sequence, int], plan: StepPlan) -> int:
        """Put as many tokens of a sequence into the step as fit; returns their number. May preempt others."""
        tokens = min(sequence.pending, budget)
        if sequence.drafts:
            # no sequence is preempted for a draft
            if self._extend(sequence, sequence.computed + tokens + len(sequence.drafts), plan):
                tokens += len(sequence.drafts)
            else:
                sequence.drafts = []
        given_back = 0
        while not self._extend(sequence, sequence.computed + tokens, plan):
            last = max(self.running, key=self._shares().leaves_first)
            given_back += works.pop(last, 0)
            self._preempt(last)
            self.preemptions += 1
            if last is sequence:
                return -given_back
        works[sequence] = tokens
        return tokens - given_back

    def _cut_drafts(self, generating: list[Sequence], budget: int) -> None:
        """Drafts get the rest of the budget after every generating sequence has a token."""
        spare = max(budget - len(generating), 0)
        for sequence in generating:
            if sequence.drafts:
                del sequence.drafts[spare:]
                spare -= len(sequence.drafts)

    def _extend(self, sequence: Sequence, tokens: int, plan: StepPlan) -> bool:
        """Give a sequence pages of its own to write up to `tokens` tokens. False: there are not enough."""
        page, offset = divmod(sequence.computed, self._page_tokens)
        # other choices of the prompt read the page's current content
        shared = offset > 0 and self._pages.owners(sequence.pages[page]) > 1
        missing = max(self._pages_for(tokens) - len(sequence.pages), 0) + shared
        if not missing:
            return True
        taken = self._cache.take(missing)
        if taken is None:
            return False
        if shared:
            copy, original = taken.pop(), sequence.pages[page]
            plan.copies.append((original, copy))
            self._cache.release((original,))
            sequence.pages[page] = copy
        sequence.pages += taken
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Send a sequence back to the queue; its tokens are kept, and evicted pages are computed again."""
        # the content that this step was to copy into its last page may be missing
        sequence.computed -= sequence.computed % self._page_tokens
        self.remove(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.waiting.push(sequence)

    def _shares(self) -> Shares:
        return Shares(self.running, self.waiting.organizations, self._pages.total, self._config.max_running)

    @property
    def _unpromised_pages(self) -> int:
        """Pages that running sequences neither own nor have reserved."""
        return self._pages.total - self._pages.pinned - self.promised_pages

    def _own_pages(self, sequence: Sequence) -> int:
        """Pages freed if the sequence leaves: those that only it owns, and its reservation."""
        own = sum(self._pages.owners(page) == 1 for page in sequence.pages)
        return own + max(sequence.most_pages - len(sequence.pages), 0)

    def _available(self, pages: int) -> bool:
        return pages <= self._pages.free + self._pages.idle

    def _most_pages(self, sequence: Sequence) -> int:
        """Pages for its tokens and for the share of its output that admission reserves."""
        output = sequence.most_tokens - len(sequence.tokens)
        return self._pages_for(len(sequence.tokens) + max(1, int(output * self._config.output_reserve)))

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self._page_tokens)
