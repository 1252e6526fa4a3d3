"""`slipstream diagnose changes`: the expected and the measured effect of each change on latency."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from contracts.errors import ConfigError
from slipstream.moment import SPAN, span
from slipstream.operated import MAX_LISTED, AdminOperation, PathValue, operated
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.api.schemas import Deleted
    from control.diagnosis.changes import ExpectedChange

FEW = "too few"
HEAD = ("made at (UTC)", "change", "number", "expected", "expected so far", "before", "after", "did", "kept", "id")
CHANGE = PathValue(None, ("change_id",))


class ChangeId(click.ParamType[UUID]):
    """A change's id."""

    name = "change_id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        try:
            return UUID(value)
        except ValueError:
            raise ConfigError(
                f"{value!r} is not the id of a change; `slipstream diagnose changes list` shows them"
            ) from None


@click.group()
def changes() -> None:
    """Compare the expected and the measured effect of changes on latency.

    \b
    Examples:
      slipstream diagnose changes add "prefix caching" --metric ttft --statistic p99 --expected-ms -250
      slipstream diagnose changes list
    """


async def _add(call: AdminCall, options: dict[str, Any]) -> Any:
    at, window = options.pop("at"), options.pop("window")
    made_at = None if at is None else at.replace(tzinfo=UTC)
    values = {**options, "made_at": made_at, "window_s": round(window.total_seconds())}
    return await AdminOperation("diagnosis.changes.create_change")(call, values)


@operated(changes, _add)
@click.argument("name")
@click.option("--metric", type=click.Choice(["ttft", "tpot", "longest_gap"]), default="ttft", show_default=True)
@click.option("--statistic", type=click.Choice(["p50", "p95", "p99"]), default="p95", show_default=True)
@click.option(
    "--expected-ms", type=float, required=True, help="Expected change in milliseconds; a negative value means faster."
)
@click.option("--tier", type=click.Choice(["chat", "autocomplete"]), help="Only requests of this tier.")
@click.option("--model", help="Only requests of this model.")
@click.option("--at", type=click.DateTime(), help="Time of the change (UTC). Default: now.")
@click.option(
    "--window",
    type=span,
    default="1d",
    show_default=True,
    metavar="SPAN",
    help=f"Length of the period that is measured before and after the change: {SPAN}.",
)
def add(made: ExpectedChange) -> str:
    """Record the change NAME and its expected effect, before it is made."""
    from control.diagnosis.changes import MIN

    if (made.before_requests or 0) < (least := MIN[made.statistic]):
        print(
            f"only {made.before_requests or 0:,} requests have been measured before the change; with fewer than "
            f"{least} the effect may be chance: give a longer --window",
            file=sys.stderr,
        )
    return _table([made])


async def _list(call: AdminCall, _: dict[str, Any]) -> list[ExpectedChange]:
    page = await AdminOperation("diagnosis.changes.list_changes", limit=MAX_LISTED)(call, {})
    found: list[ExpectedChange] = page.data
    return found[::-1]


@operated(changes, _list, "list")
def list_command(found: list[ExpectedChange]) -> str:
    """List the last hundred changes, oldest first.

    For each metric, `expected so far` is the value measured before its first change plus the expected effects of all
    changes so far. `too few` marks an effect that may be chance, because one side has too few requests for the
    statistic. An effect that is not stored is computed now; `changes measure` stores it before the traces expire.
    """
    return _table(found) if found else "no changes recorded"


@operated(changes, AdminOperation("diagnosis.changes.measure_change", CHANGE))
@click.argument("change_id", type=ChangeId())
def measure(measured: ExpectedChange) -> str:
    """Measure the effect of CHANGE_ID and store it. The period after the change must have passed."""
    return _table([measured])


@operated(changes, AdminOperation("diagnosis.changes.delete_change", CHANGE))
@click.argument("change_id", type=ChangeId())
def remove(removed: Deleted) -> str:
    """Delete CHANGE_ID, for a change that was never made."""
    return f"forgotten: {removed.id}"


def _table(found: Sequence[ExpectedChange]) -> str:
    return "\n".join(table(HEAD, rows_of(found)))


def rows_of(found: Sequence[ExpectedChange]) -> Iterator[tuple[str, ...]]:
    """The ledger's rows. found: the changes, oldest first."""
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
    """The effect, marked if either side has too few requests for its statistic."""
    from control.diagnosis.changes import MIN

    if each.effect_ms is None:
        return "-"
    fewest = min(each.before_requests or 0, each.after_requests or 0)
    return f"{_more(each.effect_ms)} ({FEW})" if fewest < MIN[each.statistic] else _more(each.effect_ms)


def _measured(value_ms: float | None, requests: int | None) -> str:
    return "-" if value_ms is None else f"{value_ms:,.0f} ms of {requests:,}"
