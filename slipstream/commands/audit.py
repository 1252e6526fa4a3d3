"""`slipstream audit`: who changed what, and the proof that the log is whole."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slipstream.commands.options import config_option, data_option, running_settings

if TYPE_CHECKING:
    from gateway.admin.audit.chain import Head, Verdict


@click.group()
def audit() -> None:
    """Read and verify the log of administrative changes."""


@audit.command(name="list")
@data_option
@config_option
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
def list_command(config_file: Path | None, data: str | None, limit: int) -> None:
    """List changes, newest first."""
    from gateway.admin.resources.audit_log import AuditQuery, list_audit
    from slipstream.administration import administer

    query = AuditQuery(limit=limit)
    page = administer(config_file, data, lambda call: list_audit.handler(call, query))
    print(f"{'row':>8}  {'time':<24}{'who':<36}{'what':<28}which")
    for entry in page.data:
        at = entry.at.isoformat(sep=" ", timespec="milliseconds")[:23]
        print(f"{entry.id:>8}  {at:<24}{entry.actor_name:<36}{entry.action:<28}{entry.subject_id}")


@audit.command()
@data_option
@config_option
@click.option("--head", metavar="ROW:HASH", help="What an earlier run printed, to be found again too.")
@click.option(
    "--heads",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the noted heads. Default: the worker's.",
)
def verify(config_file: Path | None, data: str | None, head: str | None, folder: Path | None) -> None:
    """Recompute the chain and find every noted head in it. Exit code 1 names the first row that is not as it was."""
    from gateway.admin.audit.chain import OWNED, Head, may_alter
    from gateway.admin.audit.chain import verify as verify_chain
    from gateway.admin.audit.heads import noted
    from slipstream.database import connected

    settings = running_settings(config_file, data)
    heads = [Head(each.id, each.hash) for each in noted(folder or settings.audit_heads)]
    given = [] if head is None else [_head(head)]

    async def run() -> tuple[Verdict, bool]:
        async with connected(settings) as connection:
            return await verify_chain(connection, *heads, *given), await may_alter(connection)

    verdict, owned = asyncio.run(run())
    if owned:
        print(f"warning: {OWNED}", file=sys.stderr)
    if verdict.problem is not None:
        print(f"broken: {verdict.problem}; {verdict.rows:,} rows before it are whole", file=sys.stderr)
        sys.exit(1)
    compared = f"{len(heads):,} noted heads found again" if heads else "no head was noted yet"
    print(f"whole: {verdict.rows:,} rows, {compared}; head {verdict.head or 'none, the log is empty'}")


def _head(text: str) -> Head:
    from gateway.admin.audit.chain import Head

    row, _, digest = text.partition(":")
    if not row.isdecimal() or len(digest) != 64:
        raise click.BadParameter("write it as it was printed, ROW:HASH", param_hint="--head")
    return Head(int(row), digest)
