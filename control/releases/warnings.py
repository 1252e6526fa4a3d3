"""Warnings about a release that may start although it differs in more than the version. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from contracts.desired_state import DesiredState, Pool
from control.releases.release import Release
from engines.drivers import registry as drivers

LOST = MappingProxyType(
    {
        "literal_text": "texts that hold a special token are refused",
        "min_tokens": "'min_tokens' is refused",
    }
)
"""What all customers of a split model lose if the other pool's dialect lacks the capability."""


def warnings_of(state: DesiredState, release: Release) -> list[str]:
    """Warnings of a sentence or two each, by the current pools; none if a pool was removed."""
    baseline, candidate = state.pool(release.baseline_pool), state.pool(release.candidate_pool)
    if baseline is None or candidate is None:
        return []
    control = state.pool(release.control_pool) if release.control_pool else None
    return [*_of_candidate(baseline, candidate), *_of_control(baseline, control)]


def _of_candidate(baseline: Pool, candidate: Pool) -> Iterator[str]:
    if candidate.driver != baseline.driver:
        yield (
            f"The candidate's engines are of another kind ({candidate.name}: {candidate.driver}) than the baseline's "
            f"({baseline.name}: {baseline.driver}), so the release compares engines as well as versions: a difference "
            "in latency, answers or counted tokens may be the engine's. To tell the two apart, release the version "
            "that is served now on the new engines first."
        )
        own, other = (drivers.of_pool(pool).capabilities for pool in (baseline, candidate))
        lost = [text for name, text in LOST.items() if getattr(own, name) and not getattr(other, name)]
        if lost:
            yield (
                f"While it runs, on both sides, and permanently once it is promoted: {'; '.join(lost)}, since the "
                "candidate's engines do not support this."
            )
    if baseline.max_adapters and not candidate.max_adapters:
        yield (
            f"Requests with a LoRA adapter are refused on the candidate's side: pools.{candidate.name}.max_adapters is "
            f"0, and that of {baseline.name} is {baseline.max_adapters}."
        )


def _of_control(baseline: Pool, control: Pool | None) -> Iterator[str]:
    if control is not None and control.driver != baseline.driver:
        yield (
            f"The control arm's engines are of another kind ({control.name}: {control.driver}) than the baseline's "
            f"({baseline.name}: {baseline.driver}), and the candidate is compared with them: name fresh replicas of "
            "what the baseline runs as control_pool."
        )
