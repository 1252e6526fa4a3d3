"""Decides what the next step computes.

There is one rule and no prefill or decode phase: every running sequence has tokens that are not computed yet, and a
step computes some of them (an idea of vLLM V1). A generating sequence has one such token and its drafts. A new prompt
has many and takes the rest of the step's budget, so the same rule cuts a long prompt into chunks.

A sequence starts when a slot and its reserved pages are free. Organizations take turns. An organization below its share
of memory and slots may take those that others hold above their shares (`shares.py`).
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
"""One part in this many of a step is reserved for the prompts after the oldest one."""
CANDIDATES = 8
"""Sequences at the front of an organization's queue that are tried if those before them do not fit."""


class Work(NamedTuple):
    """The next `tokens` tokens of one sequence, to be computed."""

    sequence: Sequence
    tokens: int
    drafts: int = 0
    """Number of drafts among the tokens, at their end."""
    forks: tuple[Sequence, ...] = ()
    """Choices of the same prompt that begin where this work ends. They share its pages and sample from its logits."""

    def up_to(self, position: int) -> Work:
        """The part of the work before token `position` of the sequence, without drafts."""
        tokens = min(position - self.sequence.computed, self.tokens - self.drafts)
        return self._replace(tokens=tokens, drafts=0)


@dataclass(slots=True)
class StepPlan:
    """The work of one step, empty only if no sequence runs or waits."""

    works: list[Work] = field(default_factory=list)
    """The works, whose pages are allocated."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of pages to copy, from and to, in this order, before anything is computed."""


class Scheduler:
    """Owns the queue, the list of running sequences and the pages of both."""

    def __init__(
        self, config: SchedulerConfig, pages: PagePool, cache: RadixCache, page_tokens: int, clock: Callable[[], float]
    ) -> None:
        """clock: monotonic seconds."""
        self.waiting = WaitingQueue(config.ageing_s)
        self.running: list[Sequence] = []
        self.costs = StepCosts()
        """Measured costs of tokens, which limit the steps."""
        self.preemptions = 0
        """Number of sequences returned to the queue for lack of pages."""
        self.yielded = 0
        """Number of sequences returned to the queue for another organization, which holds less."""
        self._config = config
        self._pages = pages
        self._cache = cache
        self._page_tokens = page_tokens
        self._clock = clock
        self._gathered_from_s = math.inf
        """Sequences due at this time or later do not start, because memory is reserved for an earlier one."""

    @property
    def step_tokens(self) -> int:
        """Maximum number of tokens that the next step may compute."""
        return self._step_tokens(sum(sequence.pending == 1 for sequence in self.running))

    def _step_tokens(self, generating: int) -> int:
        """The limit of a step. Without generating sequences no stream waits for it, so it may have the maximum size."""
        limit = self._config.max_batch_tokens
        if not generating:
            return limit
        spent_s = self.costs.generation_s(generating)
        return min(generating + prompt_budget(self._config.pause_ms / 1e3, spent_s, self.costs.token_s, limit), limit)

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
        """Pages that running sequences own. Pages that only the cache holds count as free."""
        return self._pages.pinned

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence; the next `schedule` may start it."""
        self.waiting.push(sequence)

    def schedule(self) -> StepPlan:
        """Plan the next step. In order, it serves generating sequences, the oldest prompt except for a reserved share,
        new sequences, the other prompts (the shortest first) and background prompts."""
        plan = StepPlan()
        works: dict[Sequence, int] = {}
        preemptions = self.preemptions
        generating = [sequence for sequence in self.running if sequence.pending == 1]
        budget = limit = self._step_tokens(len(generating))
        catching_up = [sequence for sequence in self.running if sequence.pending > 1]
        in_background = [sequence for sequence in catching_up if sequence.request.priority < 0]
        foreground = [sequence for sequence in catching_up if sequence not in in_background]
        self._cut_drafts(generating, budget)
        oldest, younger = foreground[:1], sorted(foreground[1:], key=lambda sequence: sequence.pending)
        # a sequence with few tokens to compute must not wait for another with thousands
        reserved = limit // SHARE_BEHIND if younger or self.waiting else 0
        for sequence in [*generating, *oldest]:
            allowance = max(budget - reserved, 0) if sequence in oldest else budget
            if allowance and sequence.running:  # an earlier sequence may have preempted it
                budget -= self._give(sequence, allowance, works, plan)
        self._gathered_from_s = math.inf
        # pages freed by a preemption are for running sequences; an admission now would only preempt again
        if self.preemptions == preemptions:
            while budget and (admitted := self._admit(plan, works)) is not None:
                # `_admit` may have preempted sequences of this step
                budget = limit - sum(works.values())
                budget -= self._give(admitted, budget, works, plan)
        for sequence in younger:
            if budget and sequence.running:
                budget -= self._give(sequence, budget, works, plan)
        for sequence in oldest:  # it gets the rest of the budget, even if generating sequences left it no share
            if budget and sequence.running:
                budget += works.pop(sequence, 0)
                budget -= self._give(sequence, budget, works, plan)
        for sequence in in_background:  # background work gets the rest
            if budget and sequence.running:
                budget -= self._give(sequence, budget, works, plan)
        plan.works = [Work(s, tokens, len(s.drafts), self._fork(s, tokens)) for s, tokens in works.items()]
        return plan

    def computed(self, work: Work) -> None:
        """Record that a work of the plan is computed, and cache its prompt."""
        sequence, tokens = work.sequence, work.tokens - work.drafts
        sequence.computed += tokens
        if tokens > 1 and not sequence.is_broken:
            self._cache.insert(sequence.request.namespace, sequence.tokens[: sequence.computed], sequence.pages)
        for fork in work.forks:
            fork.computed = sequence.computed
            fork.prompt_scores = list(sequence.prompt_scores)
            fork.is_broken = sequence.is_broken

    def remove(self, sequence: Sequence) -> None:
        """Remove a running sequence. Its pages stay in the cache until they are needed."""
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
        """Start the next waiting sequence that fits; None if none fits. Removes preempted sequences from `works`.

        Sequences that are due within `ageing_s` after one that does not fit may overtake it. This limit applies in its
        own queue, and in all queues if its organization runs nothing or would stay within its share. Otherwise the
        organization waits for its own responses to end, and blocks no other organization.
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
                # the cache may hold the rest of its pages
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
        """Start a waiting sequence if its reservation fits. shares: None to preempt no other sequence for it."""
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
        """Start the choices that wait for the leader's prompt, if this work completes it. Choices that do not fit
        return to the queue and later start from the cached pages."""
        if leader.computed + tokens < len(leader.tokens):
            return ()
        forks: list[Sequence] = []
        for follower in self.waiting.unpark(leader):
            most_pages = self._most_pages(follower)
            # one page more than is missing, for the last page, which all choices share until they write to it
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
        """Add as many tokens of a sequence to the step as fit; return their number. May preempt other sequences."""
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
        """Cut drafts to the rest of the budget after every generating sequence has a token."""
        spare = max(budget - len(generating), 0)
        for sequence in generating:
            if sequence.drafts:
                del sequence.drafts[spare:]
                spare -= len(sequence.drafts)

    def _extend(self, sequence: Sequence, tokens: int, plan: StepPlan) -> bool:
        """Give a sequence its own pages for up to `tokens` tokens. Returns False if there are not enough."""
        page, offset = divmod(sequence.computed, self._page_tokens)
        # other choices of the prompt read the page's current content
        shared = offset > 0 and self._pages.owners(sequence.pages[page]) > 1
        missing = max(self._pages_for(tokens) - len(sequence.pages), 0) + shared
        if not missing:
            return True
        new_pages = self._cache.take(missing)
        if new_pages is None:
            return False
        if shared:
            copy, original = new_pages.pop(), sequence.pages[page]
            plan.copies.append((original, copy))
            self._cache.release((original,))
            sequence.pages[page] = copy
        sequence.pages += new_pages
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Return a sequence to the queue. Its tokens are kept, and evicted pages are recomputed."""
        # its last page may lack content that this step was to copy
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
        """Number of pages freed if the sequence leaves: the pages that only it owns, and its reservation."""
        own = sum(self._pages.owners(page) == 1 for page in sequence.pages)
        return own + max(sequence.most_pages - len(sequence.pages), 0)

    def _available(self, pages: int) -> bool:
        return pages <= self._pages.free + self._pages.idle

    def _most_pages(self, sequence: Sequence) -> int:
        """Number of pages for the tokens and for the share of the output that admission reserves."""
        output = sequence.most_tokens - len(sequence.tokens)
        return self._pages_for(len(sequence.tokens) + max(1, int(output * self._config.output_reserve)))

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self._page_tokens)
