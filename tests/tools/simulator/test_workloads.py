"""Made-up conversations and the day have the statistics they promise."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest

from tools.simulator.arrival import Arrival
from tools.simulator.day import day, requests_per_s
from tools.simulator.sessions import SessionsConfig, sessions

CONFIG = SessionsConfig(tenants=3, block_tokens=64)


def by_session(arrivals: list[Arrival]) -> dict[str, list[Arrival]]:
    found: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        found[arrival.session_id].append(arrival)
    return found


def test_turns_repeat_the_conversation_and_add_to_it() -> None:
    several = 0
    for turns in by_session(sessions(5.0, 200.0, 4, CONFIG)).values():
        for before, after in itertools.pairwise(turns):
            several += 1
            assert after.at_s > before.at_s
            assert after.prompt_tokens > before.prompt_tokens + before.output_tokens
            assert after.blocks[: len(before.answer_blocks)] == before.answer_blocks
            assert before.answer_blocks[: len(before.blocks)] == before.blocks
    assert several > 100


def test_tenants_share_their_system_prompt_and_nothing_else() -> None:
    prompts: dict[str, set[bytes]] = defaultdict(set)
    for turns in by_session(sessions(5.0, 200.0, 5, CONFIG)).values():
        prompts[turns[0].organization_id].add(b"".join(turns[0].blocks[: CONFIG.system_tokens[0] // 64]))
    assert len(prompts) == 3
    assert all(len(each) == 1 for each in prompts.values())
    assert len(set.union(*prompts.values())) == 3


def test_requests_come_at_the_rate_from_the_start() -> None:
    arrivals = sessions(20.0, 300.0, 6)
    halves = [sum(low <= each.at_s < low + 150 for each in arrivals) for low in (0, 150)]
    assert halves == pytest.approx([3_000, 3_000], rel=0.15)


def test_a_day_has_the_products_figures() -> None:
    users_turns = sum(requests_per_s(minute * 60, 1.0) * 60 for minute in range(1_440))
    assert users_turns == pytest.approx(150e6, rel=0.01)
    assert max(requests_per_s(minute * 60, 1.0) for minute in range(1_440)) == pytest.approx(5_000, rel=0.02)
    hour = day(1_000.0, 20.5 * 3_600, 21.5 * 3_600, seed=1)
    assert len(hour) == pytest.approx(3_600 * 5, rel=0.15)
    assert sum(each.prompt_tokens for each in hour) / len(hour) == pytest.approx(3_000, rel=0.15)
    assert sum(each.output_tokens for each in hour) / len(hour) == pytest.approx(400, rel=0.15)
