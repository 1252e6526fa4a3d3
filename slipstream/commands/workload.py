"""`slipstream usage workload`: the shape of past requests, and a trace for `slipstream tools simulate`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from contracts.errors import ConfigError
from contracts.printable import printable
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.moment import MOMENT, moment
from slipstream.table import table

if TYPE_CHECKING:
    from tools.workload.report import Quantiles, Workload
    from tools.workload.request import Request

HEAD = ("organization", "tier", "requests", "prompt", "output", "sessions", "turns", "gap", "shared", "cached",
        "rate/s", "cv", "1 s", "60 s")  # fmt: skip
NAMES = "SELECT id::text, name FROM gateway.organizations WHERE id = ANY($1::uuid[])"
LEGEND = (
    "prompt, output: tokens, p50/p95/p99; gap: seconds between two turns of a session\n"
    "shared: share of the prompt tokens that an earlier prompt had; cached: share that engines reused\n"
    "cv: coefficient of variation of the times between arrivals; 1 s, 60 s: index of dispersion of the arrivals in\n"
    "intervals of this length; both are 1 for random arrivals"
)


@click.command()
@deployment_options
@click.option("--organization", help="Organization: id or name. Default: all organizations.")
@click.option("--tier", type=click.Choice(["chat", "autocomplete"]), help="Tier. Default: both.")
@click.option(
    "--since",
    type=moment,
    metavar="MOMENT",
    default="24h",
    show_default=True,
    help=MOMENT,
)
@click.option(
    "--until", type=moment, metavar="MOMENT", default="0m", help="End of the period, in the same format. Default: now."
)
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the requests to FILE as a trace in Mooncake's format, without texts or digests.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def workload(
    deployment: Deployment,
    organization: str | None,
    tier: str | None,
    since: datetime,
    until: datetime,
    export: Path | None,
    as_json: bool,
) -> None:
    """Show lengths, turns, sharing and burstiness of past requests.

    The table has a row for each organization and tier.

    \b
    Examples:
      slipstream usage workload --since 7d
      slipstream usage workload --organization acme --since 1h --export acme.jsonl
      slipstream tools simulate --trace acme.jsonl --recorded --replicas 10
    """
    from tools.workload.report import workloads

    if export is not None and not export.parent.is_dir():
        raise ConfigError(f"--export {export}: give a file in a folder that exists")
    requests, names = asyncio.run(_read(deployment, organization, tier, since, until))
    if export is not None:
        _export(requests, export)
    found = workloads(requests)
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
    elif found:
        print("\n".join(table(HEAD, [_cells(each, names) for each in found])))
        for each in found:
            _print_shared(each, names)
        print(LEGEND, file=sys.stderr)
    else:
        print("no requests in this time")


async def _read(
    deployment: Deployment, organization: str | None, tier: str | None, since: datetime, until: datetime
) -> tuple[list[Request], dict[str, str]]:
    """The requests, and the organizations' names by id."""
    from slipstream.database import connected
    from slipstream.tenants import organization_named
    from tools.workload.request import read

    async with connected(running_settings(*deployment)) as connection:
        organization_id = None if organization is None else await organization_named(connection, organization)
        requests = [request async for request in read(connection, since, until, organization_id, tier)]
        owners = sorted({request.organization_id for request in requests})
        names = await connection.fetch(NAMES, owners)
        return requests, {row["id"]: row["name"] for row in names}


def _export(requests: Sequence[Request], path: Path) -> None:
    from tools.workload.mooncake import lines

    written = 0
    with path.open("wb") as file:
        for line in lines(requests):
            file.write(msgspec.json.encode(line) + b"\n")
            written += 1
    sampled = sum(request.session_id is not None for request in requests if request.prompt_tokens)
    print(f"{written:,} requests written to {path}, {sampled:,} of them with what they share", file=sys.stderr)
    if (missing := len(requests) - written) > 0:
        print(f"{missing:,} that reached no engine are left out: their lengths are unknown", file=sys.stderr)


def _cells(each: Workload, names: Mapping[str, str]) -> list[str]:
    arrivals = each.arrivals
    return [
        names.get(each.organization_id, each.organization_id),
        each.tier,
        f"{each.requests:,}",
        _three(each.prompt_tokens),
        _three(each.output_tokens),
        f"{each.sessions:,}",
        _three(each.turns),
        _three(each.gap_s, lambda gap_s: f"{gap_s:,.1f}"),
        *("-" if part is None else f"{part:.0%}" for part in (each.reusable_share, each.cached_share)),
        *(
            "-" if number is None else f"{number:,.2f}"
            for number in (
                arrivals.rate,
                arrivals.interarrival_cv,
                arrivals.dispersion_1s,
                arrivals.dispersion_60s,
            )
        ),
    ]


def _three(values: Quantiles, text_of: Callable[[float], str] = "{:,.0f}".format) -> str:
    three = (values.p50, values.p95, values.p99)
    return "/".join("-" if value is None else text_of(value) for value in three)


def _print_shared(each: Workload, names: Mapping[str, str]) -> None:
    if each.shared_prefixes:
        name = printable(names.get(each.organization_id, each.organization_id))
        print(f"\nshared by requests of {name} ({each.tier}):")
        for prefix in each.shared_prefixes:
            print(f"  the first {prefix.tokens:>7,} tokens by {prefix.requests:>7,} requests")
