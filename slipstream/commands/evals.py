"""`slipstream evals`: runs slices on a model, compares two pools, and shows the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
import msgspec

from contracts.errors import ConfigError, NotFound
from contracts.generation import Tier
from slipstream import fetched_model
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.eval_progress import Telling, plan_of
from slipstream.exit_codes import GATE_EXIT
from slipstream.hints import command
from slipstream.operated import AdminOperation, listed
from slipstream.slice_names import slice_margins, slice_names, slice_names_for
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.evals.evals import NewComparison, RunInFull
    from control.evals.store import Comparison, Run, SliceProgress

RUNS = ("queued (UTC)", "what", "model", "pools", "status", "items answered", "id")
MADE_FOR_THEM = ("slipstream-chat", "slipstream-code")
"""Models that were trained on tasks of the slices; the goals are for them."""
SLICES = ("slice", "what", "right", "95 % interval", "items answered", "goal")
VERDICTS = ("slice", "decision", "difference", "between", "margin", "items", "why")
LOOK_S = 0.5
FoundT = TypeVar("FoundT", "RunInFull", "Comparison")

model_option = click.option("--model", help="Name of the model. Default: the deployment's first chat model.")
slices_option = click.option(
    "--slices",
    default="",
    metavar="NAMES",
    help=f"Slices, separated by commas. Default: all that fit the model's tier; for {fetched_model.NAME}: "
    f"{', '.join(fetched_model.SLICES)}.",
)
seed_option = click.option(
    "--first-seed", type=click.IntRange(min=0), help="Seed of the first item. Default: the seed of the current day."
)
wait_option = click.option("--wait/--no-wait", default=True, help="Wait until the run has ended.", show_default=True)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def evals() -> None:
    """Ask models questions whose answers a program can check.

    A worker of the queue `evals` sends the questions over HTTP like a customer, unbilled and at the lowest priority.

    \b
    Examples:
      slipstream evals run --model slipstream-chat --slices facts,lists
      slipstream evals run --model slipstream-code
      slipstream evals compare one two --model slipstream-chat
      slipstream evals nights
      slipstream evals show ID
    """


@evals.command()
@deployment_options
@model_option
@click.option("--pool", help="Pool that answers. Default: the router chooses.")
@slices_option
@click.option(
    "--items", default=100, show_default=True, type=click.IntRange(1, 100_000), help="Number of items of each slice."
)
@seed_option
@wait_option
@json_option
def run(
    deployment: Deployment,
    model: str | None,
    pool: str | None,
    slices: str,
    items: int,
    first_seed: int | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Ask a model the items of slices, and show how many it answers correctly. Exit code 1: the run failed."""
    from control.evals.evals import NewRun, create_eval_run
    from slipstream.administration import administer, converted

    model = model or _chat_model(deployment)
    values: dict[str, object] = {
        "model": model,
        "pool": pool,
        "slices": _slices(deployment, slices, model),
        "items": items,
        "first_seed": first_seed,
    }
    body = converted(values, NewRun)
    made = administer(deployment, lambda call: create_eval_run(call, body))
    if not wait:
        _print_runs([made], as_json)
        return
    found = _follow(deployment, _run_in_full, made.id)
    _print_run(found, as_json)
    sys.exit(0 if found.run.status == "done" else 1)


@evals.command()
@deployment_options
@click.argument("baseline_pool")
@click.argument("candidate_pool")
@model_option
@slices_option
@click.option(
    "--budget",
    "budget_items",
    default=1_600,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Maximum number of items of each slice.",
)
@click.option(
    "--margin",
    "margins",
    multiple=True,
    metavar="[SLICE=]SHARE",
    help="Tolerated loss in the share of right answers, for one slice or for all others. Default: 0.02.",
)
@click.option("--alpha", type=float, help="Probability that a candidate worse by the margin may pass. Default: 0.05.")
@click.option("--first-look", type=int, help="Number of items of each slice before the first evaluation. Default: 200.")
@seed_option
@wait_option
@json_option
def compare(
    deployment: Deployment,
    model: str | None,
    slices: str,
    margins: tuple[str, ...],
    alpha: float | None,
    first_look: int | None,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Ask two pools the same items of a model, until the result of each slice is proven (whether CANDIDATE_POOL is
    worse than BASELINE_POOL) or the budget is spent. Exit code 0: pass; 1: fail, or a failed run; 3: inconclusive."""
    from control.evals.evals import NewComparison, create_eval_comparison
    from slipstream.administration import administer, converted

    rule = {**slice_margins(margins, "--margin"), "alpha": alpha, "first_look": first_look}
    model = model or _chat_model(deployment)
    values = {
        **options,
        "model": model,
        "slices": _slices(deployment, slices, model),
        "rule": {name: value for name, value in rule.items() if value is not None},
    }
    body = converted(values, NewComparison)
    for warning in _before(deployment, body):
        print(f"  {warning}", file=sys.stderr, flush=True)
    made = administer(deployment, lambda call: create_eval_comparison(call, body))
    found = _follow(deployment, _comparison, made.id) if wait else made
    _print_comparison(found, as_json)
    if wait:
        sys.exit(1 if found.decision is None else GATE_EXIT[found.decision])


@listed(
    evals,
    AdminOperation("evals.eval_slices.list_eval_slices"),
    {
        "slice": "name",
        "tier": "tier",
        "goal": lambda each: f"{each.goal:.0%}" if each.goal else "-",
        "items": lambda each: f"{each.items:,}" if each.items else "any",
        "asks": "about",
    },
    name="slices",
)
def slices_command() -> None:
    """List the available slices, with the questions, the tier of models and the required score of each."""


@evals.command(name="list")
@deployment_options
@click.option("--model", help="Only runs of this model.")
@json_option
def list_command(deployment: Deployment, model: str | None, as_json: bool) -> None:
    """List the last hundred runs and comparisons, newest first."""
    from control.evals.evals import RunQuery, list_eval_comparisons, list_eval_runs
    from slipstream.administration import administer

    async def work(call: AdminCall) -> list[Run | Comparison]:
        query = RunQuery(model=model, limit=100)
        alone = [each for each in (await list_eval_runs(call, query)).data if each.arm is None]
        both: list[Run | Comparison] = [*alone, *(await list_eval_comparisons(call, query)).data]
        return sorted(both, key=lambda each: each.created_at, reverse=True)[:100]

    _print_runs(administer(deployment, work), as_json)


@evals.command()
@deployment_options
@click.option("--model", help="Only runs of this model.")
@click.option("--limit", default=14, show_default=True, type=click.IntRange(1, 100), help="Number of nights to list.")
@click.option("--every-slice", is_flag=True, help="Show every slice of the newest night, not only failed ones.")
@json_option
def nights(deployment: Deployment, model: str | None, limit: int, every_slice: bool, as_json: bool) -> None:
    """Show the verdict of each night, the next night, missing evidence, and the effect of a rollback. Exit code 1: the
    newest night of a model failed."""
    from control.eval_runs.eval_nights import NightQuery, get_night_status, list_eval_nights
    from control.eval_runs.nights import EvalNight, NightStatus
    from slipstream.administration import administer
    from slipstream.night_report import night_lines, status_lines

    async def work(call: AdminCall) -> tuple[NightStatus, list[EvalNight]]:
        found = await list_eval_nights(call, NightQuery(model=model, limit=limit))
        return await get_night_status(call), found.data

    status, found = administer(deployment, work)
    if as_json:
        print(msgspec.json.encode({"status": status, "nights": found}).decode())
    else:
        print("\n".join(status_lines(status)))
        print("\n".join(("", *night_lines(found, every_slice))) if found else "")
    newest = {one.model: one for one in reversed(found)}
    sys.exit(any(one.decision.value == "fail" for one in newest.values()))


@evals.command()
@deployment_options
@click.argument("which", metavar="ID")
@click.option("--items", "items", is_flag=True, help="Show each item with its question, answers and scores.")
@click.option("--slice", "slice", help="With --items: only items of this slice.")
@click.option("--wrong", is_flag=True, help="With --items: only items with an answer that is not fully correct.")
@click.option(
    "--changed",
    is_flag=True,
    help="With --items: only items for which the two pools of a comparison have different scores.",
)
@json_option
def show(
    deployment: Deployment, which: str, items: bool, slice: str | None, wrong: bool, changed: bool, as_json: bool
) -> None:
    """Show a run or a comparison with the progress of each slice, or with --items each item."""
    if items:
        _show_items(deployment, _id(which), slice, wrong, changed, as_json)
        return
    if slice or wrong or changed:
        raise ConfigError("--slice, --wrong and --changed choose among items; add --items")
    from slipstream.administration import administer

    async def work(call: AdminCall) -> RunInFull | Comparison:
        try:
            return await _comparison(call, _id(which))
        except NotFound:
            return await _run_in_full(call, _id(which))

    found: Any = administer(deployment, work)
    (_print_run if hasattr(found, "run") else _print_comparison)(found, as_json)


@evals.command()
@deployment_options
@click.argument("which", metavar="ID")
def cancel(deployment: Deployment, which: str) -> None:
    """End a run or a comparison. Its answers so far are kept."""
    from control.evals.evals import cancel_eval_comparison, cancel_eval_run
    from slipstream.administration import administer

    async def work(call: AdminCall) -> Run | Comparison:
        try:
            return await cancel_eval_comparison(call, _id(which))
        except NotFound:
            return await cancel_eval_run(call, _id(which))

    found = administer(deployment, work)
    ending = "" if found.status == "cancelled" else "; its worker stops within seconds"
    print(f"{found.id}: {found.status.value}{ending}")


def _show_items(
    deployment: Deployment, which: UUID, slice: str | None, wrong: bool, changed: bool, as_json: bool
) -> None:
    from slipstream.administration import administer
    from slipstream.eval_items import asked, items_of, lines_of

    async def work(call: AdminCall) -> tuple[Any, Any]:
        try:
            found = await _comparison(call, which)
        except NotFound:
            if changed:
                raise ConfigError(f"--changed: {which} is not a comparison, so it has no changes") from None
            await _run_in_full(call, which)
            return await items_of(call, which, slice), {}
        return await items_of(call, found.baseline_run, slice), await items_of(call, found.candidate_run, slice)

    answered, candidate = administer(deployment, work)
    catalogue = running_settings(*deployment).evals.catalogue()
    known = set(catalogue.names)
    every = asked(answered, candidate, lambda name: catalogue.find(name) if name in known else None)
    chosen = [each for each in every if (not wrong or each.is_wrong) and (not changed or each.is_changed)]
    if as_json:
        print("\n".join(msgspec.json.encode(each).decode() for each in chosen))
    else:
        print("\n".join(lines_of(chosen)) + f"\n{len(chosen):,} of {len(answered):,} answered items".lstrip("\n"))


async def _run_in_full(call: AdminCall, which: UUID) -> RunInFull:
    from control.evals.evals import get_eval_run

    return await get_eval_run(call, which)


async def _comparison(call: AdminCall, which: UUID) -> Comparison:
    from control.evals.evals import get_eval_comparison

    return await get_eval_comparison(call, which)


def _follow(deployment: Deployment, read: Callable[[AdminCall, UUID], Any], which: UUID) -> Any:
    """Poll the run or comparison until it ends, and print its progress. An interrupt ends only the polling."""
    from control.evals.evals import get_eval_run
    from slipstream.administration import administer
    from slipstream.processes import worker_name
    from slipstream.worker_config import PROCESSES, Queue
    from storage.tables.evals import ENDED

    async def look(call: AdminCall) -> tuple[Any, list[RunInFull]]:
        found = await read(call, which)
        if hasattr(found, "run"):
            return found, [found]
        return found, [await get_eval_run(call, each) for each in (found.baseline_run, found.candidate_run)]

    began_s = time.monotonic()
    worker = next(worker_name(queues) for queues in PROCESSES if Queue.EVALS in queues)
    telling = Telling(command(f"logs {worker}"), command("status"))
    try:
        found, runs = administer(deployment, look)
        print(f"  {plan_of(found, runs)}", file=sys.stderr, flush=True)
        while True:
            waited_s = time.monotonic() - began_s
            if (line := telling.next(found, runs, waited_s)) is not None:
                print(f"  {line}  ({waited_s:,.0f} s)", file=sys.stderr, flush=True)
            if getattr(found, "run", found).status in ENDED:
                return found
            time.sleep(LOOK_S)
            found, runs = administer(deployment, look)
    except KeyboardInterrupt:
        to_show, to_end = command(f"evals show {which}"), command(f"evals cancel {which}")
        print(f"  it continues; `{to_show}` shows it, `{to_end}` ends it", file=sys.stderr)
        sys.exit(130)


def _before(deployment: Deployment, request: NewComparison) -> Iterator[str]:
    """Warnings about a comparison before it starts."""
    from control.eval_runs.startable import too_few

    if request.baseline_pool == request.candidate_pool:
        yield f"both sides are the pool {request.baseline_pool}: this measures the gate, not a candidate"
    catalogue = running_settings(*deployment).evals.catalogue()
    yield from too_few([catalogue.find(name) for name in request.slices], request.rule, request.budget_items)


def _chat_model(deployment: Deployment) -> str:
    models = running_settings(*deployment).models
    return next((model.name for model in models if model.tier is Tier.CHAT), "slipstream-chat")


def _slices(deployment: Deployment, names: str, model: str) -> list[str]:
    """The slices to run. Default: all that fit the model's tier, but fewer for a model that fails most of them
    completely."""
    if not names and model == fetched_model.NAME:
        return list(fetched_model.SLICES)
    return slice_names(deployment, names.split(","), "--slices") or slice_names_for(deployment, model)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not the id of a run or comparison; `{command('evals list')}` shows them"
        ) from None


def _print_runs(found: Sequence[Run | Comparison], as_json: bool) -> None:
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return
    print("\n".join(table(RUNS, map(_listed, found))) if found else "there are no runs yet")


def _listed(found: Run | Comparison) -> tuple[str, ...]:
    from control.evals.store import Comparison

    made = f"{found.created_at:%Y-%m-%d %H:%M}"
    if isinstance(found, Comparison):
        status = found.decision.value if found.decision else found.status.value
        return (
            made,
            "comparison",
            found.model,
            f"{found.baseline_pool}, {found.candidate_pool}",
            status,
            "",
            str(found.id),
        )
    what = "nightly run" if found.night else "run"
    answered = f"{found.answered:,} of {found.items:,}"
    return made, what, found.model, found.pool or "as routed", found.status.value, answered, str(found.id)


def _print_run(found: RunInFull, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    print("\n".join(table(SLICES, (_slice_row(each) for each in found.slices))))
    run = found.run
    where = f"pool {run.pool}" if run.pool else "as routed"
    if run.model not in MADE_FOR_THEM and any(each.goal for each in found.slices):
        print(f"the goals are for {' and '.join(MADE_FOR_THEM)}; compare another model with its own earlier runs")
    print(f"\n{run.model}, {where}: {run.status.value}, {run.answered:,} of {run.items:,} items answered, run {run.id}")
    for each in found.slices:
        if each.refused_items:
            to_show = command(f"evals show {run.id} --items --slice {each.slice} --wrong")
            print(
                f"{each.slice}: {each.refused_items:,} items were refused and count as wrong; `{to_show}` shows the "
                "reasons"
            )
    if run.error:
        print(run.error)


def _slice_row(found: SliceProgress) -> tuple[str, ...]:
    from evals.score import Score

    answered = f"{found.answered:,} of {found.items:,}"
    if not found.answered or found.goal is None:
        return found.slice, found.about or "", "-", "-", answered, "-"
    score = Score(found.slice, found.about or "", found.score_sum, found.answered, found.goal)
    low, high = score.interval
    goal = "-" if not found.goal else f"{found.goal:.2f}" if score.is_reached else f"{found.goal:.2f}, missed"
    return found.slice, score.about, f"{score.share:.3f}", f"{low:.3f} to {high:.3f}", answered, goal


def _print_comparison(found: Comparison, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    if found.verdict is not None:
        print("\n".join(table(VERDICTS, _verdict_rows(found.verdict))))
        print()
    decided = found.decision.value if found.decision else found.status.value
    why = f": {found.verdict['reason']}" if found.verdict is not None and found.decision else ""
    print(f"{found.model}, pool {found.candidate_pool} against {found.baseline_pool}: {decided}{why}")
    print(f"comparison {found.id}; runs {found.baseline_run} and {found.candidate_run}")
    if found.error:
        print(found.error)


def _verdict_rows(verdict: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for one in verdict["slices"]:
        yield (
            one["slice"],
            one["decision"],
            f"{one['difference']:+.3f}",
            f"{one['lower']:+.3f} and {one['upper']:+.3f}",
            f"{one['margin']:.3f}",
            f"{one['n']:,}",
            one["reason"],
        )
