"""The figures of a workload against plain recounts."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigError
from slipstream.commands.workload import workload
from tools.workload.arrivals import burstiness, dispersion
from tools.workload.mooncake import lines
from tools.workload.report import quantiles, shared_prefixes, workloads
from tools.workload.request import Request

START_S = 1_795_300_000.0


def request(number: int, **given: object) -> Request:
    at_s = START_S + number
    fields = {"organization_id": "o", "tier": "chat", "model": "m", "at_s": at_s, "ended_s": at_s, "prompt_tokens": 100,
              "output_tokens": 10, **given}  # fmt: skip
    return Request(f"req_{number}", **fields)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=300))
def test_quantiles_are_the_smallest_values_that_so_many_do_not_exceed(values: list[int]) -> None:
    found = quantiles(values)
    for percent, value in ((50, found.p50), (95, found.p95), (99, found.p99)):
        enough = [each for each in sorted(values) if sum(v <= each for v in values) * 100 >= percent * len(values)]
        assert value == enough[0]


def test_arrivals_at_random_are_neither_bursty_nor_regular() -> None:
    source, at_s = random.Random(1), [START_S]
    while at_s[-1] < START_S + 40_000:
        at_s.append(at_s[-1] + source.expovariate(2.0))
    found = burstiness(at_s)
    assert found.rate == pytest.approx(2.0, rel=0.03)
    assert found.interarrival_cv == pytest.approx(1.0, rel=0.03)
    assert found.dispersion_1s == pytest.approx(1.0, rel=0.05)
    assert found.dispersion_60s == pytest.approx(1.0, rel=0.2)


def test_a_clock_is_regular_and_bursts_are_bursts() -> None:
    clock = [START_S + n for n in range(100)]
    assert burstiness(clock).interarrival_cv == pytest.approx(0.0, abs=1e-6)
    assert dispersion(clock, 1.0) == pytest.approx(0.0, abs=1e-6)
    bursts = [START_S + 10 * n + k / 1_000 for n in range(100) for k in range(20)]
    found = burstiness(bursts)
    assert found.dispersion_1s is not None
    assert found.dispersion_1s > 10
    assert found.interarrival_cv is not None
    assert found.interarrival_cv > 3


@given(st.lists(st.floats(0, 500), max_size=200), st.sampled_from([1.0, 60.0]))
def test_dispersion_is_the_variance_of_counts_over_their_mean(times: list[float], window_s: float) -> None:
    at_s = sorted(times)
    found = dispersion(at_s, window_s)
    windows = math.floor((at_s[-1] - at_s[0]) / window_s) if at_s else 0
    if windows < 10:
        assert found is None
        return
    counts = [sum(n <= (each - at_s[0]) / window_s < n + 1 for each in at_s) for n in range(windows)]
    assert found == pytest.approx(statistics.pvariance(counts) / statistics.fmean(counts))


CHAINS = st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=12)


def digests(chain: Sequence[int]) -> tuple[int, ...]:
    """As keyed digests do: each names its whole prefix."""
    return tuple(hash(tuple(chain[: at + 1])) for at in range(len(chain)))


@given(CHAINS)
def test_shared_prefixes_are_where_prompts_part(chains: list[list[int]]) -> None:
    sampled = [request(n, blocks=digests(chain), session_id="s") for n, chain in enumerate(chains)]
    naive = []
    for prefix in {tuple(chain[:end]) for chain in chains for end in range(1, len(chain) + 1)}:
        having = [chain for chain in chains if tuple(chain[: len(prefix)]) == prefix]
        longer = {len([c for c in having if tuple(c[: len(prefix) + 1]) == (*prefix, b)]) for b in range(3)}
        if len(having) > 1 and len(having) not in longer:
            naive.append((len(prefix) * 512, len(having)))
    found = [(prefix.tokens, prefix.requests) for prefix in shared_prefixes(sampled)]
    assert found == sorted(naive, key=lambda each: (-(each[1] - 1) * each[0], -each[0]))[:5]


@given(CHAINS, st.integers(0, 511))
def test_a_trace_shares_exactly_what_the_prompts_share(chains: list[list[int]], more: int) -> None:
    requests = [
        request(n, blocks=digests(chain), session_id="s", prompt_tokens=len(chain) * 512 + more)
        for n, chain in enumerate(chains)
    ]
    written = list(lines(requests))
    served = [chain for chain in chains if len(chain) * 512 + more]
    assert [line.timestamp for line in written] == [
        round((each.at_s - written_first(requests)) * 1e3) for each in requests if each.prompt_tokens
    ]
    seen: set[int] = set()
    for line, chain in zip(written, served, strict=True):
        assert len(line.hash_ids) == math.ceil(line.input_length / 512)
        for other, other_chain in zip(written, served, strict=True):
            if other is not line:
                equal = [a == b for a, b in zip(line.hash_ids, other.hash_ids, strict=False)]
                same = [a == b for a, b in zip(digests(chain), digests(other_chain), strict=False)]
                assert sum(equal) == sum(same)
        for number in line.hash_ids:  # given out from 0 in order of appearance: nothing of a digest is in them
            assert number in seen or number == len(seen)
            seen.add(number)


def written_first(requests: Sequence[Request]) -> float:
    return next((each.at_s for each in requests if each.prompt_tokens), 0.0)


def test_blocks_that_are_not_known_are_shared_with_nobody() -> None:
    requests = [request(n, prompt_tokens=1_200) for n in range(2)] + [request(2, prompt_tokens=0)]
    assert [line.hash_ids for line in lines(requests)] == [[0, 1, 2], [3, 4, 5]]


def test_a_workload_by_organization_and_tier() -> None:
    turns = [
        request(0, session_id="a", turn=1, reusable_tokens=0, ended_s=START_S + 2),
        request(10, session_id="a", turn=2, reusable_tokens=50, cached_tokens=40, ended_s=START_S + 11),
        request(11, session_id="b", turn=1, reusable_tokens=25),
        request(12, prompt_tokens=0, output_tokens=0),
        request(13, session_id="c", tier="autocomplete"),
    ]
    chat, autocomplete = workloads(turns)
    assert (chat.tier, chat.requests, chat.not_served, chat.sampled, chat.sessions) == ("chat", 4, 1, 3, 2)
    assert (chat.gap_s.p50, chat.turns.p50, chat.turns.p99) == (8.0, 1, 2)
    assert (chat.reusable_share, chat.cached_share) == (75 / 300, 40 / 300)
    assert (autocomplete.tier, autocomplete.requests, autocomplete.arrivals.rate) == ("autocomplete", 1, None)


def test_a_file_in_a_folder_that_is_missing_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match=r"--export .*in a folder that exists"):
        CliRunner().invoke(workload, ["--export", "/nowhere/at/all.jsonl"], catch_exceptions=False)
