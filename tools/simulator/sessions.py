"""Synthetic conversations: every prompt repeats the conversation so far, after a system prompt that its tenant's
sessions share.

The next prompt contains the response, so an engine can have cached it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec

from tools.simulator.arrival import Arrival, block_id

Rate = Callable[[float], float]
"""Sessions per second at a time in seconds."""

SESSION_SPACE = 1 << 40
TENANT_SPACE = 1 << 41


class SessionsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lengths are in tokens. Responses and user turns are log-normally distributed around their medians."""

    tenants: Annotated[int, msgspec.Meta(ge=1)] = 16
    """Tenants with a system prompt each; the first has the most sessions, by Zipf's law."""
    system_tokens: tuple[int, int] = (2_048, 6_144)
    """Shortest and longest system prompt."""
    turns: tuple[int, int] = (3, 8)
    """Fewest and most turns of a session."""
    user_tokens: Annotated[int, msgspec.Meta(ge=1)] = 250
    """Median length of a user's turn."""
    answer_tokens: Annotated[int, msgspec.Meta(ge=1)] = 300
    """Median length of a response."""
    deviation: Annotated[float, msgspec.Meta(ge=0)] = 0.7
    """Standard deviation of the logarithm of both."""
    longest_answer: Annotated[int, msgspec.Meta(ge=1)] = 2_048
    """Longer responses are cut to this length."""
    pause_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """Mean time that a user reads and types after a response."""
    token_s: Annotated[float, msgspec.Meta(ge=0)] = 0.02
    """Assumed time per response token until the response's end: arrivals do not wait for the engines."""
    block_tokens: Annotated[int, msgspec.Meta(ge=1)] = 256
    """Granularity of prefixes; the engines' must be the same."""


class Conversation:
    """One session: the conversation so far, as blocks."""

    def __init__(self, number: int, tenant: int, config: SessionsConfig, source: random.Random) -> None:
        low, high = config.system_tokens
        # seeded by tenant only, so that each system prompt has one length
        self.system_tokens = random.Random(f"system prompt {tenant}").randint(low, high)
        self.said_tokens = self.system_tokens
        self.turns_left = source.randint(*config.turns)
        self._number, self._tenant, self._config, self._source = number, tenant, config, source
        self._blocks: list[bytes] = []

    def turn(self, at_s: float) -> Arrival:
        """The next prompt and its response."""
        config = self._config
        self.turns_left -= 1
        self.said_tokens += self._length(config.user_tokens)
        prompt_tokens = self.said_tokens
        blocks = self._upto(prompt_tokens)
        answer = min(self._length(config.answer_tokens), config.longest_answer)
        self.said_tokens += answer
        return Arrival(
            at_s,
            prompt_tokens,
            answer,
            blocks,
            self._upto(self.said_tokens),
            organization_id=f"tenant-{self._tenant}",
            session_id=f"session-{self._number}",
        )

    def _length(self, median: int) -> int:
        return max(1, round(self._source.lognormvariate(math.log(median), self._config.deviation)))

    def _upto(self, tokens: int) -> tuple[bytes, ...]:
        size = self._config.block_tokens
        for index in range(len(self._blocks), tokens // size):
            shared = (index + 1) * size <= self.system_tokens
            space = TENANT_SPACE + self._tenant if shared else SESSION_SPACE + self._number
            self._blocks.append(block_id(index, space))
        return tuple(self._blocks[: tokens // size])


def sessions(per_s: float, duration_s: float, seed: int, config: SessionsConfig = SessionsConfig()) -> list[Arrival]:  # noqa: B008
    """Requests of `duration_s` seconds at about `per_s` per second, in order of time, as if the load had no beginning.

    Sessions that began before time 0 contribute their later turns.
    """
    rate = per_s / mean_turns(config)
    lead_s = config.turns[1] * (config.pause_s + config.answer_tokens * config.token_s)
    made = conversations(lambda _: rate, rate, lead_s + duration_s, seed, config)
    return [msgspec.structs.replace(each, at_s=each.at_s - lead_s) for each in made if each.at_s >= lead_s]


def mean_turns(config: SessionsConfig) -> float:
    """Mean number of requests in a session."""
    return sum(config.turns) / 2


def conversations(
    sessions_per_s: Rate, most_per_s: float, duration_s: float, seed: int, config: SessionsConfig
) -> Iterator[Arrival]:
    """Requests in order of time; sessions begin as a Poisson process of varying rate. most_per_s: the maximum rate.

    Source: thinning, Lewis and Shedler 1979.
    """
    source = random.Random(f"{seed} sessions")
    weights = [1 / (rank + 1) for rank in range(config.tenants)]
    following: list[tuple[float, int, Conversation]] = []
    begin_s, number, pushed = source.expovariate(most_per_s), 0, 0
    while begin_s < duration_s or following:
        if following and following[0][0] <= begin_s:
            at_s, _, conversation = heapq.heappop(following)
            if at_s >= duration_s:
                continue
        else:
            if begin_s >= duration_s:
                break
            at_s = begin_s
            begin_s += source.expovariate(most_per_s)
            if source.random() * most_per_s > sessions_per_s(at_s):
                continue
            tenant = source.choices(range(config.tenants), weights)[0]
            number += 1
            conversation = Conversation(number, tenant, config, source)
        arrival = conversation.turn(at_s)
        yield arrival
        if conversation.turns_left > 0:
            pause_s = arrival.output_tokens * config.token_s + source.expovariate(1 / config.pause_s)
            pushed += 1
            heapq.heappush(following, (at_s + pause_s, pushed, conversation))
