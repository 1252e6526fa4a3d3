"""The report of `slipstream usage autocomplete fit`: the answer first, then the figures, then the settings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from slipstream.table import table
from tools.layouts.verdict import ALLOWED_LOSS, Reason, Standing, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from contracts.fill_in_the_middle import Healing

HEAD = ("layout", "exact", "similarity", "first token, p50", "tokens per key", "exact lines, compared")
LAYOUTS = (
    "psm: prefix first, spm: suffix first, -after: half-typed line after the middle mark, +files: parts of other files."
)
COMPARED = (
    "compared: difference to the present layout in percentage points and, in brackets, the interval of the true "
    "difference at {sure}, for all layouts together."
)
FEW_FILES = 50
"""With fewer files, the intervals are wide whatever the number of lines: lines of one file resemble each other."""


class Healed(msgspec.Struct, frozen=True):
    """Healing of half-typed words. how: the gateway's method for the model; None if it does not heal them, or if the
    server is no gateway. lines: the number of lines whose word was healed, in every layout."""

    how: Healing | None
    lines: int


class Report(msgspec.Struct, frozen=True):
    """The answer as JSON. settings: the steps that give the model the layout; empty if it already has it."""

    model: str
    folder: str
    verdict: Verdict
    healed: Healed
    answer: str
    settings: Sequence[str]


def report_of(model: str, folder: Path, verdict: Verdict, healed: Healed, settings: Sequence[str]) -> Report:
    """The report on a verdict. settings: see `Report`."""
    return Report(model, str(folder), verdict, healed, _answer(model, verdict), settings)


def text_of(report: Report) -> str:
    """The report as text."""
    verdict = report.verdict
    lines = [
        report.answer,
        f"{verdict.lines:,} lines of {verdict.files:,} files of {report.folder}{_few(verdict.files)}",
        _healing(report.healed, verdict.lines),
        "",
        *table(HEAD, (_row(one, verdict) for one in verdict.standings)),
        "",
        LAYOUTS,
        COMPARED.format(sure=_sure(verdict)),
    ]
    if report.settings:
        lines += ["", "To use it:", *(f"  {step}" for step in report.settings)]
    return "\n".join(lines)


def _few(files: int) -> str:
    return f"; preferably at least {FEW_FILES} files (--from)" if files < FEW_FILES else ""


def _sure(verdict: Verdict) -> str:
    return f"{verdict.confidence * 100:g}% confidence"


def _healing(healed: Healed, lines: int) -> str:
    if healed.how is None:
        return (
            "No half-typed word was healed: the server does not list `healing` for the model (GET /v1/models). A "
            "gateway lists it where models[].fim.healing takes effect."
        )
    again = "the whole typed part again" if healed.how == "word" else "the last typed tokens again, forced by a grammar"
    return (
        f"The half-typed word was healed in {healed.lines:,} of {lines:,} lines, as the gateway does: the engine "
        f"generated {again}."
    )


def _answer(model: str, verdict: Verdict) -> str:
    chosen, own = verdict.standing(verdict.layout), verdict.standing(verdict.present)
    sure = f"at {_sure(verdict)}"
    if verdict.reason is Reason.STAYS:
        return " ".join(_stays(model, verdict, own, sure))
    assert chosen.difference is not None
    assert chosen.lower is not None
    if verdict.reason is Reason.BETTER:
        return (
            f"{model}: {chosen.layout} completes {chosen.exact:.1%} of the lines exactly, {verdict.present} (the "
            f"present layout) {own.exact:.1%}; {sure} the gain is at least {chosen.lower * 100:.1f} points."
        )
    return (
        f"{model}: {chosen.layout} computes {chosen.computed_tokens:,.0f} prompt tokens for a keystroke on average, "
        f"{verdict.present} (the present layout) {own.computed_tokens:,.0f}; {sure} it loses at most "
        f"{max(0.0, -chosen.lower) * 100:.1f} points of {own.exact:.1%} exact lines."
    )


def _stays(model: str, verdict: Verdict, own: Standing, sure: str) -> Iterator[str]:
    yield f"{model}: keep {verdict.present}, the present layout ({own.exact:.1%} of the lines exact). No other layout"
    yield f"is better {sure}, or computes half as much for a keystroke and loses less than {ALLOWED_LOSS:.0%} of them."
    if any(one.upper is not None and one.upper > 0.0 for one in verdict.standings):
        yield f"Smaller differences need more lines than {verdict.lines:,} (--lines), best of more files."


def _row(one: Standing, verdict: Verdict) -> tuple[str, ...]:
    compared = "present layout"
    if one.difference is not None and one.lower is not None and one.upper is not None:
        compared = f"{one.difference * 100:+.1f} points ({one.lower * 100:+.1f} to {one.upper * 100:+.1f})"
    return (
        f"{'* ' if one.layout == verdict.layout else '  '}{one.layout}",
        f"{one.exact:.1%}",
        f"{one.similarity:.3f}",
        "-" if one.first_token_ms is None else f"{one.first_token_ms:,.0f} ms",
        "-" if one.computed_tokens is None else f"{one.computed_tokens:,.0f}",
        compared,
    )
