"""`slipstream import`: imports models, customers, keys and limits from another gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from slipstream.commands.options import Deployment, deployment_options
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from slipstream.litellm_import.acting import Made
    from slipstream.litellm_import.plan import Note

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


class _DryRun(Exception):
    """Rolls back the transaction of a dry run."""


@click.group("import")
def import_() -> None:
    """Import models, customers, keys and limits from another gateway."""


@import_.command()
@deployment_options
@click.option(
    "--database",
    envvar="LITELLM_DATABASE_URL",
    help="URL of LiteLLM's PostgreSQL, for teams, keys and budgets; alternatively LITELLM_DATABASE_URL. The command "
    "only reads it.",
)
@click.option(
    "--organization",
    default="litellm",
    show_default=True,
    help="Name of the organization for keys that belong to no team.",
)
@click.option("--dry-run", is_flag=True, help="Report the entries that would be created, but change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("config", type=FILE)
def litellm(
    deployment: Deployment, database: str | None, organization: str, dry_run: bool, as_json: bool, config: Path
) -> None:
    """Import LiteLLM's configuration file CONFIG and, with --database, its teams, keys, budgets and limits.

    Creates missing entries in one transaction and changes no existing ones. Keys keep working: their hashes move.
    The report lists each entry without a counterpart, with the next step.
    """
    from slipstream.administration import administer
    from slipstream.litellm_import.acting import Import
    from slipstream.litellm_import.models import planned_models
    from slipstream.litellm_import.plan import Notes, Plan
    from slipstream.litellm_import.settings import aliases_of, note_settings
    from slipstream.litellm_import.source import read_config, read_tables
    from slipstream.litellm_import.tenants import Tables, Tenants

    settings = read_config(config)
    tables = Tables() if database is None else asyncio.run(read_tables(database))
    notes = Notes()
    models = planned_models(settings.get("model_list") or [], aliases_of(settings, notes), os.environ, notes)
    names = {name: each.model.name for each in models for name in (each.model.name, *each.model.aliases)}
    organizations = Tenants(tables, names, organization, datetime.now(UTC), notes).planned()
    note_settings(settings, notes)
    made: list[Made] = []
    versions: list[int | None] = []

    async def work(call: AdminCall) -> None:
        if call.currency != "USD" and any(each.price for each in models):
            notes.differs("prices", f"LiteLLM's are in USD; here the same numbers are {call.currency}")
        act = Import(call, notes)
        await act.run(Plan(models, organizations, notes))
        made.extend(act.made)
        versions.append(call.fleet_version)
        if dry_run:
            raise _DryRun

    with contextlib.suppress(_DryRun):
        administer(deployment, work)
    if as_json:
        print(msgspec.json.encode({"dry_run": dry_run, "objects": made, "notes": notes}).decode())
    else:
        _print(made, notes, dry_run)
    if not dry_run and any(each.new and each.kind in ("pool", "model") for each in made):
        _require_taken_up(deployment, versions[-1], quiet=as_json)


def _require_taken_up(deployment: Deployment, version: int | None, *, quiet: bool) -> None:
    """Show which gateways serve the models. Exit with code 1 if one cannot, such as one that lacks a key."""
    from slipstream.fleet_edit import taken_up, told

    assert version is not None
    reports = asyncio.run(taken_up(deployment, version))
    if not quiet:
        print("\n".join(told(reports, version)), file=sys.stderr)
    if any(each.refusal for each in reports):
        sys.exit(1)


def _print(made: list[Made], notes: list[Note], dry_run: bool) -> None:
    new, existing = Counter(each.kind for each in made if each.new), Counter(each.kind for each in made if not each.new)
    rows = [(kind, str(new[kind]), str(existing[kind])) for kind in dict.fromkeys(each.kind for each in made)]
    print("\n".join(table(("kind", "would be made" if dry_run else "made", "there before"), rows)))
    for each in made:
        if each.new and each.kind not in ("key", "limits"):
            print(f"  {each.kind} {each.name}")
    if notes:
        print(f"\n{len(notes)} entries without an exact counterpart:")
        rows_of_notes = [(each.outcome.value, each.where, each.what, each.step or "-") for each in notes]
        print("\n".join(table(("", "entry", "what", "next step"), rows_of_notes)))
