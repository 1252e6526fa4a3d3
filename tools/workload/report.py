"""Lengths, outputs, turns, gaps, sharing and burstiness of one organization's requests in one tier."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from contracts.nearest_rank import nearest_rank
from gateway.prefixes.template import SAMPLE_TOKENS
from tools.workload.arrivals import Burstiness, burstiness
from tools.workload.request import Request

PREFIXES_SHOWN = 5


class Quantiles(msgspec.Struct, frozen=True):
    """Quantiles by nearest rank; all None without values."""

    p50: float | None
    p95: float | None
    p99: float | None


class SharedPrefix(msgspec.Struct, frozen=True):
    """The longest common prefix of several prompts, of at least 512 tokens."""

    tokens: int
    requests: int


class Workload(msgspec.Struct, frozen=True):
    """Requests of one organization in one tier."""

    organization_id: str
    tier: str
    requests: int
    not_served: int
    """Requests that no engine received, so that their lengths are unknown; they count only as arrivals."""
    sampled: int
    """Served requests with a prefix sample, from which sessions and sharing are derived."""
    prompt_tokens: Quantiles
    output_tokens: Quantiles
    sessions: int
    turns: Quantiles
    """Turns per session."""
    gap_s: Quantiles
    """Time from the end of a turn to the arrival of the next one."""
    reusable_share: float | None
    """Fraction of the prompt tokens that an earlier request of the organization had, as the gateways counted."""
    cached_share: float | None
    """Fraction of the prompt tokens that engines reported as reused."""
    shared_prefixes: tuple[SharedPrefix, ...]
    """The prefixes that save the most tokens, the largest saving first."""
    arrivals: Burstiness


def workloads(requests: Iterable[Request]) -> list[Workload]:
    """One for each organization and tier, those with the most requests first. requests: by arrival."""
    groups: dict[tuple[str, str], list[Request]] = defaultdict(list)
    for request in requests:
        groups[request.organization_id, request.tier].append(request)
    found = [_workload(organization_id, tier, some) for (organization_id, tier), some in groups.items()]
    return sorted(found, key=lambda workload: (-workload.requests, workload.organization_id, workload.tier))


def _workload(organization_id: str, tier: str, requests: Sequence[Request]) -> Workload:
    served = [request for request in requests if request.prompt_tokens]
    sampled = [request for request in served if request.session_id is not None]
    turns = turns_of(sampled)
    return Workload(
        organization_id=organization_id,
        tier=tier,
        requests=len(requests),
        not_served=len(requests) - len(served),
        sampled=len(sampled),
        prompt_tokens=quantiles([request.prompt_tokens for request in served]),
        output_tokens=quantiles([request.output_tokens for request in served]),
        sessions=len(turns),
        turns=quantiles([len(session) for session in turns]),
        gap_s=quantiles(
            [
                max(later.at_s - earlier.ended_s, 0.0)
                for session in turns
                for earlier, later in itertools.pairwise(session)
            ]
        ),
        reusable_share=_part(sum(request.reusable_tokens or 0 for request in sampled), sampled),
        cached_share=_part(sum(request.cached_tokens for request in served), served),
        shared_prefixes=shared_prefixes(sampled),
        arrivals=burstiness([request.at_s for request in requests]),
    )


def turns_of(sampled: Iterable[Request]) -> list[list[Request]]:
    """The requests of each session, by turn."""
    sessions: dict[str, list[Request]] = defaultdict(list)
    for request in sampled:
        sessions[request.session_id or request.request_id].append(request)
    return [sorted(session, key=lambda request: (request.turn, request.at_s)) for session in sessions.values()]


def shared_prefixes(sampled: Iterable[Request]) -> tuple[SharedPrefix, ...]:
    """The prefixes after which prompts diverge: each one that more prompts have than any longer one."""
    prompts: dict[int, int] = defaultdict(int)
    blocks: dict[int, int] = {}
    most_longer: dict[int, int] = defaultdict(int)
    chains = [request.blocks for request in sampled]
    for chain in chains:
        for depth, block in enumerate(chain, 1):
            prompts[block] += 1
            blocks[block] = depth
    for chain in chains:
        for block, longer in itertools.pairwise(chain):
            most_longer[block] = max(most_longer[block], prompts[longer])
    shared = [
        SharedPrefix(blocks[block] * SAMPLE_TOKENS, count)
        for block, count in prompts.items()
        if count > max(most_longer[block], 1)
    ]
    shared.sort(key=lambda prefix: (-(prefix.requests - 1) * prefix.tokens, -prefix.tokens))
    return tuple(shared[:PREFIXES_SHOWN])


def quantiles(values: Sequence[float]) -> Quantiles:
    """p50, p95 and p99 by nearest rank: each is one of the values."""
    ordered = sorted(values)
    return Quantiles(*(nearest_rank(ordered, percent) for percent in (50, 95, 99)))


def _part(tokens: int, requests: Sequence[Request]) -> float | None:
    total = sum(request.prompt_tokens for request in requests)
    return min(tokens / total, 1.0) if total else None
