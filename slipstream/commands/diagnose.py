"""`slipstream diagnose`: the cause of slow requests, and the changes that help."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from contracts.errors import ConfigError
from slipstream.command_table import Group
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.exit_codes import DIAGNOSIS_EXIT
from slipstream.moment import MOMENT, SPAN, moment, span

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.diagnosis.diagnosis import DiagnosisOf
    from control.diagnosis.findings.evidence import Audit


def _since(text: str) -> datetime:
    """Like `moment`, within the period that one diagnosis may cover. Raises BadParameter."""
    from control.diagnosis.diagnosis import MAX, MIN

    found = moment(text, MAX)
    if datetime.now(UTC) - found < MIN:
        raise click.BadParameter(f"{text!r} is not in the past; give a time from {MIN.seconds}s to {MAX.days}d ago")
    return found


def _before(text: str) -> timedelta:
    """Like `span`, up to the longest period of a comparison. Raises BadParameter."""
    from control.diagnosis.diagnosis import MAX

    return span(text, MAX)


@click.group(cls=Group, invoke_without_command=True)
@deployment_options
@click.option(
    "--tenant",
    "--organization",
    "tenant",
    metavar="ORGANIZATION",
    help="Only requests of this organization (id or name).",
)
@click.option("--tier", type=click.Choice(["chat", "autocomplete"]), help="Only requests of this tier.")
@click.option(
    "--since",
    type=_since,
    default="1h",
    show_default=True,
    metavar="MOMENT",
    help=f"Start of the period, which ends now: {MOMENT}. At most seven days ago.",
)
@click.option(
    "--before",
    type=_before,
    metavar="SPAN",
    help=f"Length of the preceding period to compare with: {SPAN}; seven days at most. Default: the same length.",
)
@click.option("--url", help="Also measure the path from this machine to the gateway at this URL, like audit-stream.")
@click.option(
    "--api-key-file",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with the API key for --url. Default: SLIPSTREAM_API_KEY.",
)
@click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="CA certificates (PEM) of a private certificate authority, for --url.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, as GET /admin/v1/diagnosis returns it.")
@click.pass_context
def diagnose(
    context: click.Context,
    /,
    deployment: Deployment,
    tenant: str | None,
    tier: str | None,
    since: datetime,
    before: timedelta | None,
    url: str | None,
    key_file: Path | None,
    ca_file: str | None,
    as_json: bool,
) -> None:
    """Find the cause of an alert or of slow requests; show objectives.

    The report lists the evidence, and changes that would not help. The command compares the requests with the preceding
    period and with their objectives. Exit code 0: no alert fires and no cause is above its threshold; 4: a cause was
    found or an alert fires; 3: not enough evidence; 2: a wrong option, a wrong setting or an unreachable database; 1:
    any other error.

    \b
    Examples:
      slipstream diagnose --since 30m
      slipstream diagnose --tenant acme --tier chat --since 2h --before 1d
      SLIPSTREAM_API_KEY=sk-slip-... slipstream diagnose --url https://models.example.com
    """
    if context.invoked_subcommand is not None:
        return
    from control.diagnosis.diagnosis import MAX, DiagnosisQuery
    from slipstream.administration import administer, converted
    from slipstream.diagnosis_now import diagnosis_now
    from slipstream.diagnosis_report import text_of
    from slipstream.tenants import organization_named

    audit = None if url is None else asyncio.run(_audited(url, key_file, ca_file))
    end = datetime.now(UTC)
    since = max(since, end - MAX)  # `since` was checked a moment ago, or before the audit
    query: dict[str, object] = {
        "start": since,
        "end": end,
        "tier": tier,
        "before_start": since - (before or end - since),
    }

    settings = running_settings(*deployment)

    async def work(call: AdminCall) -> DiagnosisOf:
        organization_id = None if tenant is None else await organization_named(call.connection, tenant)
        return await diagnosis_now(call, settings, converted(query, DiagnosisQuery), organization_id, audit)

    found = administer(deployment, work)
    print(msgspec.json.encode(found).decode() if as_json else text_of(found))
    sys.exit(DIAGNOSIS_EXIT[found.outcome])


async def _audited(url: str, key_file: Path | None, ca_file: str | None) -> Audit:
    """The audit of the path to the gateway, or the reason why it was not possible."""
    from slipstream.diagnosis_audit import audited
    from tools.lsp.key import take_key

    secret = take_key({}, key_file, os.environ)
    if not secret:
        raise ConfigError("--url: no API key: set SLIPSTREAM_API_KEY, or give --api-key-file FILE")
    return await audited(url, secret, ca_file)
