"""`slipstream audit`: who changed what, and the proof that the log is whole."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slipstream.commands.options import config_option, data_option, running_settings

if TYPE_CHECKING:
    from gateway.admin.audit_chain import Head, Verdict


@click.group()
def audit() -> None:
    """Read and verify the log of administrative changes."""


@audit.command(name="list")
@data_option
@config_option
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
def list_command(config_file: Path | None, data: str | None, limit: int) -> None:
    """List changes, newest first."""
    from gateway.admin.audit import AuditQuery, list_audit
    from slipstream.administration import administer

    query = AuditQuery(limit=limit)
    print(f"{'row':>8}  {'time':<24}{'who':<28}{'what':<28}which")
    for entry in administer(config_file, data, lambda call: list_audit.handler(call, query)).data:
        at = entry.at.isoformat(sep=" ", timespec="milliseconds")[:23]
        print(f"{entry.id:>8}  {at:<24}{entry.actor_name:<28}{entry.action:<28}{entry.subject_id}")


@audit.command()
@data_option
@config_option
@click.option("--head", metavar="ROW:HASH", help="What an earlier run printed: proves that nothing was cut off.")
def verify(config_file: Path | None, data: str | None, head: str | None) -> None:
    """Recompute the chain. Exit code 1 names the first broken row; keep the head it prints somewhere else."""
    from gateway.admin.audit_chain import verify as verify_chain
    from slipstream.database import connected

    settings, remembered = running_settings(config_file, data), _head(head)

    async def run() -> Verdict:
        async with connected(settings) as connection:
            return await verify_chain(connection, remembered)

    verdict = asyncio.run(run())
    if verdict.problem is not None:
        print(f"broken: {verdict.problem}; {verdict.rows:,} rows before it are whole", file=sys.stderr)
        sys.exit(1)
    print(f"whole: {verdict.rows:,} rows; head {verdict.head or 'none, the log is empty'}")


def _head(text: str | None) -> Head | None:
    from gateway.admin.audit_chain import Head

    if text is None:
        return None
    row, _, digest = text.partition(":")
    if not row.isdecimal() or len(digest) != 64:
        raise click.BadParameter("write it as it was printed, ROW:HASH", param_hint="--head")
    return Head(int(row), digest)
