"""`slipstream releases`: a candidate takes over a model's sessions in stages, with automatic rollback."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec

from contracts.errors import ConfigError
from contracts.printable import printable
from slipstream.command_table import Group
from slipstream.commands.options import Deployment, deployment_options
from slipstream.release_report import HEAD, lines_of, percent, row_of, stage_name
from slipstream.slice_names import slice_margins as margins_of
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.releases.releases import ReleaseDetail, ReleaseReason, ReleaseSummary

WATCH_EVERY_S = 2.0
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
reason_option = click.option("--reason", required=True, help="Reason, for the release's steps and the audit log.")


@click.group(cls=Group)
def releases() -> None:
    """Release a new version of a model in stages, or review one.

    The stages are shadow, 1, 5, 25, 100 %.

    \b
    Examples:
      slipstream releases start --model chat --candidate chat-new
      slipstream releases watch chat
      slipstream releases rollback chat --reason "customers complain"
    """


@releases.command()
@deployment_options
@click.option("--model", required=True, help="Name of the model.")
@click.option("--candidate", "candidate_pool", required=True, help="Pool that serves the new version.")
@click.option("--engine-model", help="Name of the model on the candidate's engines, if it differs.")
@click.option(
    "--control", "control_pool", default="", help="Pool with fresh replicas of the baseline, for the control arm."
)
@click.option(
    "--stages",
    default="shadow,1,5,25,100",
    show_default=True,
    help="Percentages of the sessions, rising to 100. In the stage `shadow`, requests are only copied.",
)
@click.option(
    "--slice",
    "slices",
    multiple=True,
    help="A slice of the model's tier that the candidate must pass before the shadow stage ends. Repeat for several.",
)
@click.option(
    "--slice-margin",
    "slice_margins",
    multiple=True,
    metavar="[SLICE=]SHARE",
    help="Tolerated loss in score from 0 to 1, for one slice or for all others.  [default: 0.02]",
)
@click.option(
    "--slice-items", "slice_budget_items", type=int, help="Maximum number of items of a slice.  [default: 1600]"
)
@click.option(
    "--slice-correlation",
    type=float,
    help="Assumed correlation of rare losses among items of a template.  [default: 0.05]",
)
@click.option(
    "--shadow-share",
    type=float,
    default=0.05,
    show_default=True,
    help="Share of the sessions, 0 to 1, whose requests are copied to the candidate in each stage before 100 %.",
)
@click.option(
    "--shadow-least",
    type=int,
    default=100,
    show_default=True,
    help="Number of copied requests that both sides must answer.",
)
@click.option(
    "--tolerance", type=float, help="Tolerated increase in latency, as a fraction from 0 to 0.5.  [default: 0.1]"
)
@click.option(
    "--error-margin", type=float, help="Tolerated increase in the share of failed requests.  [default: 0.005]"
)
@click.option(
    "--goodput-margin",
    type=float,
    help="Tolerated increase in the share of requests that miss their objectives.  [default: 0.02]",
)
@click.option("--alpha", type=float, help="Probability of rolling back a candidate that is no worse.  [default: 0.05]")
@click.option(
    "--promotion-alpha",
    type=float,
    help="Probability of promoting a candidate that is worse by a margin.  [default: 0.05]",
)
@click.option(
    "--quantiles",
    help="Quantiles of the baseline's latency at which the two are compared.  [default: 0.25,0.5, … 0.99,0.995]",
)
@click.option(
    "--promoted-quantile",
    type=float,
    help="The quantile among them that must be proven.  [default: 0.99, otherwise the highest]",
)
@click.option(
    "--cold-requests", type=int, help="Number of first requests of each stage that do not count.  [default: 50]"
)
@click.option(
    "--max-sessions",
    "most_units",
    type=int,
    help="Number of sessions after which an undecided stage is held.  [default: 200000]",
)
@click.option(
    "--min-votes",
    "least_votes",
    type=int,
    help="Number of decisive votes that the release needs from reviewers.  [default: 0]",
)
@click.option(
    "--least",
    "least_units",
    help="Number of sessions that each arm needs: one number for each stage between shadow and 100.  [default: "
    "200,500,1000]",
)
@json_option
def start(
    deployment: Deployment,
    as_json: bool,
    stages: str,
    least_units: str | None,
    quantiles: str | None,
    slice_margins: tuple[str, ...],
    **options: Any,
) -> None:
    """Start a release. It begins once the model's pool has answered enough requests for a comparison."""
    from control.releases.margins import Margins
    from control.releases.releases import NewRelease, start_release
    from slipstream.administration import administer, converted

    named = {name: options.pop(name, None) for name in Margins.__struct_fields__}
    margins: dict[str, object] = {name: value for name, value in named.items() if value is not None}
    if quantiles is not None:
        margins["quantiles"] = _numbers(quantiles, "--quantiles", float)
    if least_units is not None:
        margins["least_units"] = _least(least_units, _shares(stages))
    rule = margins_of(slice_margins, "--slice-margin")
    for name in ("budget_items", "correlation"):
        if (value := options.pop(f"slice_{name}")) is not None:
            rule[name] = value
    values = {**options, "stages": _shares(stages), "margins": margins, "slice_rule": rule}
    body = converted(values, NewRelease)
    _show(administer(deployment, lambda call: start_release(call, body)), as_json)


@releases.command(name="list")
@deployment_options
@click.option("--model", help="Only releases of this model.")
@json_option
def list_command(deployment: Deployment, model: str | None, as_json: bool) -> None:
    """List the last hundred releases, newest first."""
    from control.releases.releases import ReleaseQuery, list_releases
    from slipstream.administration import administer

    async def work(call: AdminCall) -> list[ReleaseSummary]:
        found: list[ReleaseSummary] = (await list_releases(call, ReleaseQuery(limit=100, model=model))).data
        return found

    found = administer(deployment, work)
    if as_json:
        print("\n".join(msgspec.json.encode(each).decode() for each in found))
    else:
        print("\n".join(table(HEAD, map(row_of, found))) if found else "there are no releases yet")


@releases.command()
@deployment_options
@click.argument("release")
@json_option
def show(deployment: Deployment, release: str, as_json: bool) -> None:
    """Show the stage of RELEASE (an id, or a model for its newest release), the evidence so far, and the missing
    evidence."""
    _show(_detail(deployment, release), as_json)


@releases.command()
@deployment_options
@click.argument("release")
def watch(deployment: Deployment, release: str) -> None:
    """Follow RELEASE until it ends. Exit code 1: it was rolled back."""
    from control.releases.machine import State

    shown = ""
    while True:
        found = _detail(deployment, release)
        where = f"{stage_name(found.stages, found.stage)}, {percent(found.share)} of the sessions"
        line = f"{found.model}: {found.state.value} at {where}: {found.waits_for or found.reason}"
        if line != shown:
            print(f"{datetime.now(UTC):%T}  {printable(line)}", flush=True)
            shown = line
        if found.state.ended:
            break
        time.sleep(WATCH_EVERY_S)
    if found.state is State.ROLLED_BACK:
        raise SystemExit(1)


@releases.command()
@deployment_options
@click.argument("release")
@reason_option
@json_option
def hold(deployment: Deployment, release: str, reason: str, as_json: bool) -> None:
    """Hold RELEASE in its stage. Automatic rollback stays on."""
    from control.releases.releases import hold_release

    _by_hand(deployment, release, hold_release, _reason(reason), as_json)


@releases.command()
@deployment_options
@click.argument("release")
@reason_option
@click.option("--more-units", type=int, default=0, help="Number of sessions to add to a spent evidence budget.")
@json_option
def resume(deployment: Deployment, release: str, reason: str, more_units: int, as_json: bool) -> None:
    """Resume the automatic promotion of RELEASE."""
    from control.releases.releases import ReleaseResumption, resume_release
    from slipstream.administration import converted

    body = converted({"reason": reason, "more_units": more_units}, ReleaseResumption)
    _by_hand(deployment, release, resume_release, body, as_json)


@releases.command()
@deployment_options
@click.argument("release")
@reason_option
@json_option
def promote(deployment: Deployment, release: str, reason: str, as_json: bool) -> None:
    """Promote RELEASE by one stage, regardless of its evidence."""
    from control.releases.releases import promote_release

    _by_hand(deployment, release, promote_release, _reason(reason), as_json)


@releases.command()
@deployment_options
@click.argument("release")
@reason_option
@json_option
def rollback(deployment: Deployment, release: str, reason: str, as_json: bool) -> None:
    """Send no more sessions to the candidate of RELEASE. This needs no worker. Running streams finish."""
    from control.releases.releases import roll_back_release

    _by_hand(deployment, release, roll_back_release, _reason(reason), as_json)


@releases.command()
@deployment_options
@click.argument("release")
@json_option
def replay(deployment: Deployment, release: str, as_json: bool) -> None:
    """Judge every step of RELEASE again from its evidence, and compare each verdict with the stored one. Exit code 1: a
    verdict differs, or a step does not follow from its verdict."""
    from control.releases import store
    from control.releases.rollout.judging import Replayed
    from control.releases.rollout.judging import replay as judged_again
    from slipstream.administration import administer

    release_id = _detail(deployment, release).id

    async def work(call: AdminCall) -> list[Replayed]:
        found = await store.read(call.connection, release_id)
        assert found is not None
        return judged_again(found, await store.steps_of(call.connection, release_id))[1]

    found = administer(deployment, work)
    differ = [each.step for each in found if not each.same]
    if as_json:
        print("\n".join(msgspec.json.encode(each).decode() for each in found))
    elif differ:
        print(
            f"{len(differ)} of {len(found)} verdicts differ from the stored ones: steps {', '.join(map(str, differ))}"
        )
    else:
        requests = sum(each.requests for each in found)
        print(f"{len(found)} verdicts over {requests} requests: all are identical to the stored ones")
    if differ:
        raise SystemExit(1)


def _reason(reason: str) -> ReleaseReason:
    from control.releases.releases import ReleaseReason
    from slipstream.administration import converted

    return converted({"reason": reason}, ReleaseReason)


def _by_hand(
    deployment: Deployment, release: str, operation: Callable[..., Any], body: ReleaseReason, as_json: bool
) -> None:
    from slipstream.administration import administer

    which = _detail(deployment, release).id
    work: Callable[[AdminCall], Awaitable[ReleaseDetail]] = lambda call: operation(call, which, body)  # noqa: E731
    _show(administer(deployment, work), as_json)


def _detail(deployment: Deployment, release: str) -> ReleaseDetail:
    """The release with this id, or the newest one of the model with this name. Raises ConfigError."""
    from control.releases.releases import ReleaseQuery, get_release, list_releases
    from slipstream.administration import administer

    async def work(call: AdminCall) -> ReleaseDetail:
        try:
            which = UUID(release)
        except ValueError:
            found = (await list_releases(call, ReleaseQuery(limit=1, model=release))).data
            if not found:
                raise ConfigError(
                    f"{release!r} is neither the id of a release nor a model that was ever released; `slipstream "
                    "releases list` shows them"
                ) from None
            which = found[0].id
        return await get_release(call, which)

    return administer(deployment, work)


def _show(found: ReleaseDetail, as_json: bool) -> None:
    print(msgspec.json.encode(found).decode() if as_json else "\n".join(lines_of(found, datetime.now(UTC))))


def _shares(text: str) -> list[float]:
    names = ["0" if each.strip() == "shadow" else each for each in text.split(",")]
    return [percent / 100 for percent in _numbers(",".join(names), "--stages", float)]


def _least(text: str, stages: list[float]) -> list[int]:
    least: list[int] = _numbers(text, "--least", int)
    serving = [percent(share) for share in stages if 0 < share < 1]
    if len(least) != len(serving) or min(least) < 1:
        raise ConfigError(
            f"--least: {text!r} must be {len(serving)} numbers of 1 or more with commas in between, one for each "
            f"stage of --stages between shadow and 100 %: {', '.join(serving)}",
            param="--least",
        )
    return least


def _numbers(text: str, option: str, kind: type[Any]) -> list[Any]:
    try:
        return [kind(each.strip().removesuffix("%")) for each in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option}: {text!r} is not a list of numbers with commas in between", param=option) from None
