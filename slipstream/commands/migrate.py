"""`slipstream migrate`: the database's tables, up or down."""

from __future__ import annotations

from pathlib import Path

import click

from slipstream.commands.options import config_option, data_option, running_settings


@click.group()
def migrate() -> None:
    """Bring the database to a revision."""


@migrate.command(name="up")
@data_option
@config_option
@click.argument("revision", default="head")
def upgrade(config_file: Path | None, data: str | None, revision: str) -> None:
    """Migrate up to REVISION (default: the newest)."""
    from migrations.run import current
    from migrations.run import upgrade as run

    settings = running_settings(config_file, data)
    url = settings.migration_database_url
    run(url, revision, application_url=settings.database_url)
    print(f"the database is at revision {current(url)}")


@migrate.command(name="down")
@data_option
@config_option
@click.argument("revision")
@click.option("--yes", is_flag=True, help="Do not ask; tables of later revisions go, with their rows.")
def downgrade(config_file: Path | None, data: str | None, revision: str, yes: bool) -> None:
    """Migrate down to REVISION (`base` for an empty database)."""
    from migrations.run import current
    from migrations.run import downgrade as run

    url = running_settings(config_file, data).migration_database_url
    if not yes:
        click.confirm(f"This deletes tables and their rows, down to {revision}. Go on?", abort=True)
    run(url, revision)
    print(f"the database is at revision {current(url) or 'base'}")
