"""`slipstream console audit`: lists administrative changes with their actors, and verifies that the log is intact."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contracts.errors import ConfigError
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.operated import AdminOperation, listed

if TYPE_CHECKING:
    from control.audit.audit_log import AuditEntry
    from control.audit.chain import Head, Verdict


@click.group()
def audit() -> None:
    """Read and verify the log of administrative changes."""


def _subject(entry: AuditEntry) -> str:
    """The subject's name after the change, or before it; else its id."""
    for state in (entry.after, entry.before):
        if isinstance(state, dict) and (name := state.get("name")):
            return str(name)
    return entry.subject_id


@listed(
    audit,
    AdminOperation("audit.audit_log.list_audit"),
    {
        "row": "id",
        "time (UTC)": lambda each: f"{each.at:%Y-%m-%d %H:%M:%S}",
        "who": "actor_name",
        "what": "action",
        "which": _subject,
    },
)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
def list_command() -> None:
    """List administrative changes, newest first. A subject without a name is shown by its id."""


@audit.command()
@deployment_options
@click.option("--head", metavar="ROW:HASH", help="A head that an earlier run printed. The log must still contain it.")
@click.option(
    "--heads",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the recorded heads. Default: the folder that the worker uses.",
)
def verify(deployment: Deployment, head: str | None, folder: Path | None) -> None:
    """Recompute the chain and check that it contains every recorded head. Exit code 1: a row was altered, and the
    command prints the first one."""
    from control.audit.chain import OWNED, Head, may_alter
    from control.audit.chain import verify as verify_chain
    from control.audit.heads import noted
    from slipstream.database import connected
    from slipstream.settings import AUDIT_FOLDER

    settings = running_settings(*deployment)
    heads_folder = folder or settings.audit_heads
    heads = [Head(each.id, each.hash) for each in noted(heads_folder)]
    # A folder that the user names must hold heads; the default one may be empty, if the log has just begun.
    if not heads and heads_folder.absolute() != settings.data.path / AUDIT_FOLDER:
        raise _no_heads(heads_folder, "--heads" if folder else "worker.audit.heads_folder")
    given_heads = [] if head is None else [_head(head)]

    async def run() -> tuple[Verdict, bool]:
        async with connected(settings) as connection:
            return await verify_chain(connection, *heads, *given_heads), await may_alter(connection)

    verdict, owned = asyncio.run(run())
    if owned:
        print(f"warning: {OWNED}", file=sys.stderr)
    if verdict.problem is not None:
        print(f"broken: {verdict.problem}; {verdict.rows:,} rows before it are intact", file=sys.stderr)
        sys.exit(1)
    caveat = "" if given_heads else " (a log cut off at the end, or recomputed as a whole, would go unnoticed)"
    no_heads = f"no head is recorded yet in {heads_folder}{caveat}"
    compared = f"{len(heads):,} recorded heads found again" if heads else no_heads
    print(f"intact: {verdict.rows:,} rows, {compared}; head {verdict.head or 'none, the log is empty'}")


def _no_heads(folder: Path, named_by: str) -> ConfigError:
    from control.audit.heads import FILE

    return ConfigError(
        f"{named_by}: {folder} holds no recorded heads ({FILE}); name the folder that the worker writes them "
        "to (worker.audit.heads_folder); it records one at its start if the log has rows",
        param=named_by,
    )


def _head(text: str) -> Head:
    from control.audit.chain import Head

    row, _, digest = text.partition(":")
    if not row.isdecimal() or len(digest) != 64:
        raise click.BadParameter(
            "write it exactly as printed, ROW:HASH with the 64 digits of the hash", param_hint="--head"
        )
    return Head(int(row), digest)
