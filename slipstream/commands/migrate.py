"""`slipstream config migrate`: migrates the database's tables up or down."""

from __future__ import annotations

import sys

import click

from slipstream.commands.options import Deployment, deployment_options, running_settings


@click.group()
def migrate() -> None:
    """Bring the database to a revision."""


@migrate.command(name="up")
@deployment_options
@click.argument("revision", default="head")
@click.option("--wait", is_flag=True, hidden=True, help="Wait for a line on standard input before migrating.")
def upgrade(deployment: Deployment, revision: str, wait: bool) -> None:
    """Migrate up to REVISION (default: the newest)."""
    from migrations.run import current
    from migrations.run import upgrade as run

    if wait and not sys.stdin.readline():
        return  # `up`, which started this, has ended
    settings = running_settings(*deployment)
    url = settings.migration_database_url
    run(url, revision, application_url=settings.database_url)
    print(f"the database is at revision {current(url)}")


@migrate.command(name="down")
@deployment_options
@click.argument("revision")
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation. Tables of later revisions are deleted with their rows."
)
def downgrade(deployment: Deployment, revision: str, yes: bool) -> None:
    """Migrate down to REVISION (`base` for an empty database)."""
    from migrations.run import current
    from migrations.run import downgrade as run

    url = running_settings(*deployment).migration_database_url
    if not yes:
        click.confirm(f"This deletes tables and their rows, down to {revision}. Continue?", abort=True)
    run(url, revision)
    print(f"the database is at revision {current(url) or 'base'}")
