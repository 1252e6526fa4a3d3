"""Run by Alembic for every command: hands it the connection that `migrations.run` opened, locked and will commit."""

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
