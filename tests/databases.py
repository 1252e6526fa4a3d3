"""Migrated databases for tests: copies of one template, emptied and used again where a test changed only rows."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg

from infra.local.folders import APPLICATION_ROLE
from migrations.run import upgrade

Connection: TypeAlias = "asyncpg.Connection[Any]"

OWNER = "slipstream"
"""The role that owns the tables. All URLs name the role that the product runs as instead."""
TEMPLATE = "template_migrated"
TABLES = """
SELECT array_agg(format('%I.%I', nspname, relname) ORDER BY nspname, relname)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relkind = 'r' AND nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%'
    AND relname <> 'slipstream_version'
"""
SEQUENCES = "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences"
SHAPE = """
SELECT md5(string_agg(part, E'\\n' ORDER BY part)) FROM (
    SELECT concat_ws(
        ' ', 'relation', oid, relnamespace, relname, relkind, relowner, relacl, reloptions, relhastriggers,
        relrowsecurity, pg_get_expr(relpartbound, oid)
    ) AS part FROM pg_class WHERE oid >= 16384 AND relkind <> 't'
    UNION ALL SELECT concat_ws(' ', 'column', attrelid, attnum, xmin) FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT concat_ws(' ', 'index', indexrelid, xmin) FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT concat_ws(' ', 'trigger', oid, xmin) FROM pg_trigger
    UNION ALL SELECT concat_ws(' ', 'constraint', oid, xmin) FROM pg_constraint
    UNION ALL SELECT concat_ws(' ', 'function', oid, xmin) FROM pg_proc
    UNION ALL SELECT concat_ws(' ', 'view', oid, xmin) FROM pg_rewrite
    UNION ALL SELECT concat_ws(' ', 'schema', oid, xmin) FROM pg_namespace
    UNION ALL SELECT concat_ws(' ', 'version', version_num) FROM public.slipstream_version
    UNION ALL SELECT concat_ws(' ', 'setting', setdatabase, setrole, setconfig) FROM pg_db_role_setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
) AS parts
"""
"""The schema as migrations make it. `xmin` is the transaction that wrote a row: whatever alters a table, a trigger or a
right, even to alter it back, changes it."""
ALONE = (
    "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
)
LARGE_BYTES = 256 * 1024
"""A table is emptied by DELETE up to this size: TRUNCATE makes a new file for the table and for each of its indexes."""


class Databases:
    """The databases of one test process on one server. Use `migrated`."""

    def __init__(self, server: Path, administrator: Connection, tables: list[str], shape: str) -> None:
        self._server = server
        self._administrator = administrator
        self._shape = shape
        self._filled = "SELECT array_remove(ARRAY[{}], NULL)".format(
            ", ".join(f"CASE WHEN EXISTS (SELECT FROM {table}) THEN '{table}' END" for table in tables)
        )
        self._numbers = itertools.count(1)
        self._returned: dict[str, Connection] = {}
        """Databases that nobody uses, with a connection to each: its caches make the next emptying cheap."""
        self._connections: dict[str, Connection] = {}
        self.copied = 0

    async def take(self) -> str:
        """The URL of a migrated, empty database that is the caller's until it gives it back."""
        for name, connection in list(self._returned.items()):
            # A connection of an earlier test may still end, or may not: its database stays aside as long.
            if await connection.fetchval(ALONE):
                del self._returned[name]
                if await self._emptied(connection):
                    return url(self._server, name)
                await connection.close()
                del self._connections[name]
                await self._administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
        return await self.copy()

    async def give_back(self, taken: str) -> None:
        """Let others use the database of this URL."""
        name = name_in(taken)
        if name not in self._connections:
            self._connections[name] = await asyncpg.connect(url(self._server, name, OWNER))
            await self._connections[name].execute("SET session_replication_role = replica")
        self._returned[name] = self._connections[name]

    async def copy(self, template: str = TEMPLATE, role: str = APPLICATION_ROLE) -> str:
        """The URL of a new database, a copy of the template."""
        name = f"test_{next(self._numbers)}"
        self.copied += 1
        # A copy of files costs half of what a copy through the write-ahead log does, which is the default.
        await self._administrator.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return url(self._server, name, role)

    async def close(self) -> None:
        """Close all connections; the server may stop."""
        for connection in (*self._connections.values(), self._administrator):
            connection.terminate()

    async def _emptied(self, connection: Connection) -> bool:
        """Whether the database is as its template again: False where a test changed more than rows."""
        if await connection.fetchval(SHAPE) != self._shape:
            return False
        filled = await connection.fetchval(self._filled)
        sizes = await connection.fetch(
            "SELECT name, pg_relation_size(name::regclass) AS size FROM unnest($1::text[]) name", filled
        )
        large = [row["name"] for row in sizes if row["size"] > LARGE_BYTES]
        statements = [f"DELETE FROM {row['name']}" for row in sizes if row["size"] <= LARGE_BYTES]
        statements += [f"TRUNCATE {', '.join(large)} CASCADE"] if large else []
        await connection.execute("; ".join([*statements, SEQUENCES]))
        return True


async def migrated(server: Path) -> Databases:
    """Databases on the server whose socket lies in this folder, migrated once."""
    administrator = await asyncpg.connect(url(server, "postgres", OWNER))
    await administrator.execute("SET file_copy_method = clone")  # shares the files' blocks where the file system can
    await administrator.execute(f"CREATE DATABASE {TEMPLATE}")
    upgrade(url(server, TEMPLATE, OWNER), application_url=url(server, TEMPLATE))
    template = await asyncpg.connect(url(server, TEMPLATE, OWNER))
    try:
        tables, shape = await template.fetchval(TABLES), await template.fetchval(SHAPE)
    finally:
        await template.close()
    return Databases(server, administrator, tables, shape)


def url(server: Path, database: str, role: str = APPLICATION_ROLE) -> str:
    """The URL of a database for asyncpg, by the folder of the server's socket."""
    return f"postgresql://{role}@/{database}?host={server}"


def as_owner(url: str) -> str:
    """The same database as the role that may alter its tables: for what only a migration or a thief would do."""
    return url.replace(f"//{APPLICATION_ROLE}@", f"//{OWNER}@")


def as_application(owner_url: str) -> str:
    """The same database as the role that the product runs as."""
    return owner_url.replace(f"//{OWNER}@", f"//{APPLICATION_ROLE}@")


def name_in(url: str) -> str:
    """The database that a URL names."""
    return url.partition("@/")[2].partition("?")[0]
