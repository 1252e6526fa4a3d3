"""Decides whether a model may be served rounded, by KL and next tokens on held-out texts and by slices, with bounds.

It runs and measures models in this process; the decisions are pure (`judge_distance`, `decide`, and `evals.gate` for
slices).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from engines.embedded.quantization.passages import Passage, passage_of
from engines.tokenizer.tokenizer import Tokenizer
from evals.gate import Decision, GateVerdict, PairedItem, SliceRule, judge
from evals.slices.item import Item, Slice, assistant
from evals.slices.split import Split
from tools.quantization.asking import Asked
from tools.quantization.distance import Distance
from tools.quantization.scheme import Scheme
from tools.quantization.sensitivity import Progress, Report, measure


class Check(msgspec.Struct, frozen=True):
    """One bound and its decision."""

    name: str
    decision: Decision
    reason: str


class Verdict(msgspec.Struct, frozen=True):
    """The decision on the whole scheme."""

    decision: Decision
    """fail if any part failed, pass if all passed, else inconclusive."""
    reason: str
    checks: tuple[Check, ...]
    slices: GateVerdict | None
    """None without slices, as for a model that takes no conversations."""
    report: Report


def judge_distance(distance: Distance, budget_kl: float, margin: float) -> tuple[Check, Check]:
    """Compare KL with its budget, and the loss of correct next tokens with the margin."""
    kl, right = distance.kl_per_token, distance.right
    return (
        Check(
            "KL per token",
            _decided(proven=kl.upper <= budget_kl, refuted=kl.lower > budget_kl),
            f"{kl.value:.6f}, {kl.lower:.6f} to {kl.upper:.6f}; at most {budget_kl:g}",
        ),
        Check(
            "next token right",
            _decided(proven=right.lower > -margin, refuted=right.upper < -margin),
            f"{100 * right.value:+.3f} points, {100 * right.lower:+.3f} to {100 * right.upper:+.3f}; "
            f"not worse by {100 * margin:g}",
        ),
    )


def decide(checks: Sequence[Check], slices: GateVerdict | None) -> tuple[Decision, str]:
    """The decision on the whole from its parts, and the reason."""
    found = [(check.name, check.decision) for check in checks]
    if slices is not None:
        found += [(one.slice, one.decision) for one in slices.slices]
    for decision, outcome in ((Decision.FAIL, "failed"), (Decision.INCONCLUSIVE, "not decided")):
        if names := [name for name, own in found if own is decision]:
            return decision, f"{len(names)} of {len(found)} {outcome}: {', '.join(names)}"
    return Decision.PASS, f"all of {len(found)} passed"


def run(
    folder: Path,
    scheme: Scheme,
    passages: Sequence[Passage],
    budget_kl: float,
    margin: float,
    slices: Mapping[str, tuple[Slice, SliceRule]],
    *,
    first_seed: int = 0,
    progress: Progress = lambda _: None,
) -> Verdict:
    """Measure, run the slices and judge. slices: by name; empty for a model that takes no conversations.

    Raises ConfigError about the folder or the calibration.
    """
    report = measure(folder, passages, scheme, budget_kl, progress=progress)
    checks = judge_distance(report.rounded, budget_kl, margin)
    verdict = ask_slices(folder, scheme, slices, first_seed=first_seed, progress=progress) if slices else None
    decision, reason = decide(checks, verdict)
    return Verdict(decision, reason, checks, verdict, report)


def ask_slices(
    folder: Path,
    scheme: Scheme,
    slices: Mapping[str, tuple[Slice, SliceRule]],
    *,
    first_seed: int = 0,
    progress: Progress = lambda _: None,
) -> GateVerdict:
    """Draw items until every slice is decided or its budget is used up, and run each on both models."""
    models = Asked(folder), Asked(folder, scheme=scheme)
    rules = {name: rule for name, (_, rule) in slices.items()}
    paired: dict[str, list[PairedItem]] = {name: [] for name in slices}
    verdict = judge(paired, rules)
    while wanted := verdict.wanted:
        for name, count in wanted.items():
            progress(f"{name}: {count:,} items of at most {rules[name].budget:,}")
            source = slices[name][0]
            seeds = range(first_seed + len(paired[name]), first_seed + count)
            items = [source.item(seed, Split.HELD_OUT) for seed in seeds]
            scores = [[item.score(answer) for item, answer in _answered(model, items)] for model in models]
            paired[name] += [
                PairedItem(name, item.cluster, before, after)
                for item, before, after in zip(items, *scores, strict=True)
            ]
        verdict = judge(paired, rules)
    return verdict


def passages_of(slices: Iterable[Slice], tokenizer: Tokenizer, items: int, first_seed: int = 0) -> list[Passage]:
    """Held-out conversations of each slice with their right answers; only the answers are measured."""
    passages: list[Passage] = []
    for source in slices:
        for seed in range(first_seed, first_seed + items):
            item = source.item(seed, Split.HELD_OUT)
            messages = (*item.messages, assistant(item.reference))
            passages.append(passage_of(messages, tokenizer, len(passages)))
    return passages


def _answered(model: Asked, items: Sequence[Item]) -> Iterable[tuple[Item, str]]:
    return zip(items, model.answers(items), strict=True)


def _decided(*, proven: bool, refuted: bool) -> Decision:
    if proven:
        return Decision.PASS
    return Decision.FAIL if refuted else Decision.INCONCLUSIVE
