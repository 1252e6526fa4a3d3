"""The diagnosis benchmark: its engines do what engines do, and its answer key is made of causes and changes that there
are."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from msgspec.structs import replace

from benchmarks.diagnosed.causes import INJECTIONS
from benchmarks.diagnosed.paced_engine import BLOCK_TOKENS, Pace, Replica, Sequence, blocks_of
from benchmarks.diagnosis import Judged, matrix
from control.diagnosis.findings.finding import Cause
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.tree import diagnose
from tests.control.diagnosis.findings.traffic import evidence
from tests.deployment import ROOT

FAST = Pace(token_s=0.001, shared_s=0.0, prefill_s=0.0)


async def answered(pace: Pace, *asked: tuple[str, int]) -> list[Sequence]:
    """Requests sent at once, each a prompt and how many tokens of answer, when all have ended."""
    replica, clock = Replica(pace), asyncio.get_running_loop().time
    stepping = asyncio.create_task(replica.run())
    sent = [
        Sequence(len(text) // 4, tokens, blocks_of(text.encode()), clock(), asyncio.Queue()) for text, tokens in asked
    ]
    for each in sent:
        replica.submit(each)
    for each in sent:
        async with asyncio.timeout(30):
            while await each.events.get() != "end":
                pass
    stepping.cancel()
    assert replica.used_tokens == len(replica.waiting) == 0
    return sent


async def test_what_finds_no_place_in_the_batch_waits() -> None:
    first, second = await answered(replace(FAST, max_running=1), ("a" * 400, 5), ("b" * 400, 5))
    assert first.started_s is not None
    assert second.started_s is not None
    assert first.first_s is not None
    assert second.started_s > first.first_s


async def test_whole_blocks_of_a_known_prefix_are_cached() -> None:
    shared = "a" * 4 * BLOCK_TOKENS * 3
    first, second = await answered(replace(FAST, max_running=1), (f"{shared}first", 2), (f"{shared}second", 2))
    assert (first.cached_tokens, second.cached_tokens) == (0, 3 * BLOCK_TOKENS)


async def test_what_outgrows_the_memory_is_begun_again_and_ends() -> None:
    pace = replace(FAST, capacity_tokens=230)
    sent = await answered(pace, ("a" * 400, 40), ("b" * 400, 40))
    assert [each.retractions for each in sent] == [0, 1]
    assert [each.generated for each in sent] == [40, 40]


@pytest.mark.parametrize("name", INJECTIONS)
def test_the_answer_key_names_what_there_is_and_rules_propose_none_of_its_wrong_changes(name: str) -> None:
    injection = INJECTIONS[name]
    assert injection.wrong <= {fix.value for fix in Fix}
    if injection.expected is not None:
        found = diagnose(evidence(1, Cause(injection.expected)))
        assert found.primary is not None
        assert not {fix.value for fix in found.primary.fixes} & injection.wrong


def test_the_matrix_counts() -> None:
    judged = [Judged(1, "healthy", "nothing_found", True, ()), Judged(1, "limits", "queue", False, ())]
    assert matrix(judged).splitlines()[1:] == [
        "healthy              1      .",
        "limits               .      1",
    ]


@pytest.mark.nightly
def test_a_running_deployment_is_diagnosed() -> None:
    command = "-m benchmarks.diagnosis --seeds 1 --check --causes healthy limits".split()
    done = subprocess.run([sys.executable, *command, "slow router"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
