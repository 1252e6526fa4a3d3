"""`slipstream releases shadow`: compares candidates' answers with those that customers got, in numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from contracts.printable import printable
from slipstream.commands.options import Deployment, deployment_options
from slipstream.commands.reviews import filters, percent, stage
from slipstream.table import table

if TYPE_CHECKING:
    from control.shadow.sums import ShadowSums
    from evals.statistics.interval import Estimate

SHARES = {
    "failed": "the candidate failed",
    "late": "the candidate was late",
    "baseline_failed": "the customer's own engine failed",
    "same_text": "the same text",
    "same_text_greedy": "the same text, at temperature 0",
    "same_finish": "ended for the same reason",
    "same_tool_calls": "the same tool calls, where either called",
    "baseline_json_valid": "JSON where requested, before",
    "candidate_json_valid": "JSON where requested, candidate",
    "baseline_refused": "refused, before",
    "candidate_refused": "refused, candidate",
    "agreed": "part of the text up to the first difference",
}
RATIOS = {
    "length": "length of the text",
    "ttft": "time to the first token, caches alike",
    "tokens_per_s": "tokens a second",
}


@click.command()
@deployment_options
@filters
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def shadow(deployment: Deployment, release: str | None, model: str | None, as_json: bool) -> None:
    """Compare candidates' responses with those that customers got.

    The command prints a table of copied requests (`shadow_share` of a model's canary) for each release, model and
    stage. Intervals are 95 % intervals over sessions.
    """
    from control.shadow.shadow import ShadowQuery, get_shadow
    from slipstream.administration import administer

    query = ShadowQuery(release=release, model=model)
    found = administer(deployment, lambda call: get_shadow(call, query)).data
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return
    print("\n\n".join("\n".join(lines_of(each)) for each in found) if found else "no request was copied")


def lines_of(found: ShadowSums) -> Iterator[str]:
    """The lines for one release, model and stage."""
    release = f" in release {printable(found.release)}" if found.release else ""
    at = "" if found.stage_share is None else f", stage {stage(found.stage_share)}"
    yield f"{printable(found.model)}{release}{at}: {found.pairs:,} pairs of {found.units:,} sessions"
    rows = [(label, percent(getattr(found, name))) for name, label in SHARES.items()]
    rows += [(f"{label}, by the one before", _ratio(getattr(found, name))) for name, label in RATIOS.items()]
    yield from table(("number", "value (95 % interval) of sessions"), rows)


def _ratio(estimate: Estimate) -> str:
    if estimate.value is None:
        return "-"
    interval = "" if estimate.lower is None else f" ({estimate.lower:.2f} to {estimate.upper:.2f})"
    return f"{estimate.value:.2f}{interval} of {estimate.units:,}"
