"""Finds a failing model or pool: few of all requests may be most requests of one model, which is then unusable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

import msgspec

from control.diagnosis.findings.evidence import Failure, Window


class FailingPart(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one model or one pool. failures: those with the requested codes, the most frequent first."""

    label: str
    requests: int
    failures: tuple[Failure, ...]

    @property
    def count(self) -> int:
        """Requests that failed."""
        return sum(failure.count for failure in self.failures)

    @property
    def codes(self) -> str:
        """The failures for a sentence, such as `39 no_engine_available`."""
        return ", ".join(f"{failure.count:,} {failure.code}" for failure in self.failures)

    @property
    def told(self) -> str:
        """The sentence of evidence."""
        share = f"{self.count / self.requests:.1%}"
        return f"Of {self.requests:,} requests of {self.label} {self.count:,} ({share}) ended with it: {self.codes}."


def failing_part(window: Window, codes: Collection[str], share: float, fewest: int) -> FailingPart | None:
    """The model or pool with the largest share of failures with these codes.

    None if none had at least `fewest` failures and `share` of its requests. A part with all of the window's requests
    adds no information and is ignored.
    """
    over = [
        part
        for part in _parts(window, codes)
        if part.requests < window.requests and part.count >= fewest and part.count >= share * part.requests
    ]
    return max(over, key=lambda part: part.count / part.requests, default=None)


def _parts(window: Window, codes: Collection[str]) -> list[FailingPart]:
    """Models come first, so that the model is named if a model and a pool have the same requests."""
    requests: Counter[str] = Counter()
    failures: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for noun in ("model", "pool"):
        for target in window.targets:
            name = getattr(target, noun)
            if not name:
                continue
            label = f"the {noun} {name}"
            requests[label] += target.requests
            for failure in target.failures:
                if failure.code in codes:
                    failures[label][failure.code] += failure.count
    return [
        FailingPart(
            label=label,
            requests=requests[label],
            failures=tuple(Failure(code, count) for code, count in failed.most_common()),
        )
        for label, failed in failures.items()
    ]
