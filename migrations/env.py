"""Alembic runs this module for every command. It gets the connection that `migrations.run` opens, locks and commits."""

from __future__ import annotations

from alembic import context

from migrations.revision import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    include_schemas=True,
    transactional_ddl=True,
)
context.run_migrations()
