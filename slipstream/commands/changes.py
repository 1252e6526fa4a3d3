"""`slipstream diagnose changes`: the expected and the measured effect of each change on latency."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from contracts.errors import ConfigError
from slipstream.commands.options import Deployment, deployment_options
from slipstream.moment import SPAN, span
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.diagnosis.changes import ExpectedChange

FEW = "too few"
HEAD = ("made at (UTC)", "change", "number", "expected", "expected so far", "before", "after", "did", "kept", "id")


@click.group()
def changes() -> None:
    """Compare the expected and the measured effect of changes on latency.

    \b
    Examples:
      slipstream diagnose changes add "prefix caching" --metric ttft --statistic p99 --expected-ms -250
      slipstream diagnose changes list
    """


@changes.command()
@deployment_options
@click.argument("name")
@click.option("--metric", type=click.Choice(["ttft", "tpot", "longest_gap"]), default="ttft", show_default=True)
@click.option("--statistic", type=click.Choice(["p50", "p95", "p99"]), default="p95", show_default=True)
@click.option("--expected-ms", type=float, required=True, help="Milliseconds more; below 0: less.")
@click.option("--tier", type=click.Choice(["chat", "autocomplete"]), help="Of this tier's requests only.")
@click.option("--model", help="Of this model's requests only.")
@click.option("--at", type=click.DateTime(), help="When it is made (UTC). Default: now.")
@click.option(
    "--window",
    type=span,
    default="1d",
    show_default=True,
    metavar="SPAN",
    help=f"Measured before and after it: {SPAN}.",
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def add(deployment: Deployment, at: datetime | None, window: timedelta, as_json: bool, **given: Any) -> None:
    """Note the change NAME and what is expected of it, best before it is made."""
    from control.diagnosis.changes import LEAST, NewChange, create_change
    from slipstream.administration import administer, converted

    made_at = None if at is None else at.replace(tzinfo=UTC)
    body = converted({**given, "made_at": made_at, "window_s": round(window.total_seconds())}, NewChange)
    made = administer(deployment, lambda call: create_change(call, body))
    _print([made], as_json)
    if (made.before_requests or 0) < (least := LEAST[made.statistic]):
        print(
            f"only {made.before_requests or 0:,} requests were measured before it so far; with fewer than {least} "
            "the effect may be chance: give a longer --window",
            file=sys.stderr,
        )


@changes.command(name="list")
@deployment_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_command(deployment: Deployment, as_json: bool) -> None:
    """Print the ledger: the last hundred changes, the oldest first.

    `expected so far` begins with what was measured before the first change of a number, and adds what is expected of
    each. An effect is marked `too few` where it may be chance: either side has too few requests for the statistic. One
    that is not kept is computed now; `changes measure` keeps it before traces are forgotten.
    """
    from control.api.schemas import PageQuery
    from control.diagnosis.changes import list_changes
    from slipstream.administration import administer

    async def work(call: AdminCall) -> list[ExpectedChange]:
        found: list[ExpectedChange] = (await list_changes(call, PageQuery(limit=100))).data
        return found[::-1]

    _print(administer(deployment, work), as_json)


@changes.command()
@deployment_options
@click.argument("change_id")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def measure(deployment: Deployment, change_id: str, as_json: bool) -> None:
    """Measure what CHANGE_ID did and keep it, once the time after it has passed."""
    from control.diagnosis.changes import measure_change
    from slipstream.administration import administer

    _print([administer(deployment, lambda call: measure_change(call, _id(change_id)))], as_json)


@changes.command()
@deployment_options
@click.argument("change_id")
def remove(deployment: Deployment, change_id: str) -> None:
    """Forget CHANGE_ID, which was never made."""
    from control.diagnosis.changes import delete_change
    from slipstream.administration import administer

    print(f"forgotten: {administer(deployment, lambda call: delete_change(call, _id(change_id))).id}")


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no change's id; `slipstream diagnose changes list` shows them") from None


def _print(found: Sequence[ExpectedChange], as_json: bool) -> None:
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return
    print("\n".join(table(HEAD, rows_of(found))) if found else "no change is noted")


def rows_of(found: Sequence[ExpectedChange]) -> Iterator[tuple[str, ...]]:
    """The ledger's rows. found: the oldest first."""
    so_far: dict[tuple[object, ...], float] = {}
    for each in found:
        number = (each.metric, each.statistic, each.tier, each.model)
        start_ms = so_far.get(number, each.before_ms)
        if start_ms is not None:
            so_far[number] = start_ms + each.expected_ms
        yield (
            f"{each.made_at:%Y-%m-%d %H:%M}",
            each.name,
            " ".join(str(part) for part in number if part is not None),
            _more(each.expected_ms),
            "-" if number not in so_far else f"{so_far[number]:,.0f} ms",
            _measured(each.before_ms, each.before_requests),
            _measured(each.after_ms, each.after_requests),
            _effect(each),
            "-" if each.measured_at is None else "yes",
            str(each.id),
        )


def _more(value_ms: float) -> str:
    return f"{value_ms:+,.0f} ms"


def _effect(each: ExpectedChange) -> str:
    """Marked where either side has too few requests for its statistic."""
    from control.diagnosis.changes import LEAST

    if each.effect_ms is None:
        return "-"
    fewest = min(each.before_requests or 0, each.after_requests or 0)
    return f"{_more(each.effect_ms)} ({FEW})" if fewest < LEAST[each.statistic] else _more(each.effect_ms)


def _measured(value_ms: float | None, requests: int | None) -> str:
    return "-" if value_ms is None else f"{value_ms:,.0f} ms of {requests:,}"
