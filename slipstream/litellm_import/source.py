"""Reads LiteLLM's configuration file and database. Writes to neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec
import yaml

from contracts.errors import ConfigError, InvalidField
from slipstream.litellm_import.tenants import Tables

READ = {
    "organizations": ("LiteLLM_OrganizationTable", "created_at, organization_id"),
    "teams": ("LiteLLM_TeamTable", "created_at, team_id"),
    "projects": ("LiteLLM_ProjectTable", "created_at, project_id"),
    "users": ("LiteLLM_UserTable", "user_id"),
    "keys": ("LiteLLM_VerificationToken", "created_at, token"),
    "budgets": ("LiteLLM_BudgetTable", "budget_id"),
}
"""Tables by field of `Tables`, with their order. Names follow it, so that a second import assigns the same ones."""
COUNTED = (
    "LiteLLM_ProxyModelTable", "LiteLLM_Config", "LiteLLM_CredentialsTable", "LiteLLM_DeprecatedVerificationToken",
    "LiteLLM_EndUserTable", "LiteLLM_TagTable", "LiteLLM_TeamMembership", "LiteLLM_OrganizationMembership",
    "LiteLLM_ModelTable", "LiteLLM_MCPServerTable", "LiteLLM_AgentsTable", "LiteLLM_GuardrailsTable",
    "LiteLLM_PromptTable", "LiteLLM_JWTKeyMapping", "LiteLLM_ManagedVectorStoresTable", "LiteLLM_ManagedFileTable",
    "LiteLLM_AccessGroupTable", "LiteLLM_PolicyTable",
)  # fmt: skip
"""Tables without a counterpart; the report shows their numbers of rows."""
EXISTS = "SELECT to_regclass($1) IS NOT NULL"
PRISMA = frozenset({"schema", "connection_limit", "pool_timeout", "socket_timeout", "pgbouncer", "connect_timeout"})
"""Parameters of Prisma's URLs that PostgreSQL does not have."""
TIMEOUT_S = 30.0


def read_config(file: Path) -> dict[str, Any]:
    """The configuration. Raises InvalidField if the file is not one."""
    try:
        found = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidField(f"{file}: not readable as YAML: {error}", param="config") from None
    expected = "a mapping with 'model_list'"
    if not isinstance(found, dict):
        raise InvalidField(
            f"{file}: LiteLLM's configuration is {expected}; this is {type(found).__name__}", param="config"
        )
    try:
        msgspec.convert(found.get("model_list") or [], list[dict[str, Any]])
        for section in ("router_settings", "litellm_settings", "general_settings"):
            msgspec.convert(found.get(section) or {}, dict[str, Any])
    except msgspec.ValidationError as error:
        raise InvalidField(f"{file}: LiteLLM's configuration is {expected}: {error}", param="config") from None
    return found


async def read_tables(url: str) -> Tables:
    """The rows, in one snapshot. Raises ConfigError if the database is unreachable or has no tables of LiteLLM's."""
    try:
        connection = await _connected(url)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise ConfigError(f"--database: LiteLLM's database cannot be reached: {error!r}", param="database") from None
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=str, decoder=msgspec.json.decode)
            if not await connection.fetchval(EXISTS, '"LiteLLM_VerificationToken"'):
                raise ConfigError(
                    '--database: there is no table "LiteLLM_VerificationToken"; give the DATABASE_URL of the proxy, '
                    "with its `?schema=` if there is one",
                    param="database",
                )
            rows = {field: await _rows(connection, *table) for field, table in READ.items()}
            counts = {table: await _count(connection, table) for table in COUNTED}
            return Tables(**rows, others={table: count for table, count in counts.items() if count})
    finally:
        await connection.close()


async def _connected(url: str) -> asyncpg.Connection[Any]:
    """A connection by the proxy's own URL, without the parameters of its database library."""
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query))
    own = {name: value for name, value in parameters.items() if name not in PRISMA}
    settings = {"search_path": parameters["schema"]} if "schema" in parameters else {}
    plain = urlunsplit(parts._replace(query=urlencode(own)))
    return await asyncpg.connect(plain, timeout=TIMEOUT_S, server_settings=settings)


async def _rows(connection: asyncpg.Connection[Any], table: str, order: str) -> list[dict[str, Any]]:
    """The rows with all columns, which depend on the proxy's version."""
    if not await connection.fetchval(EXISTS, f'"{table}"'):
        return []
    return [dict(row) for row in await connection.fetch(f'SELECT * FROM "{table}" ORDER BY {order}')]  # noqa: S608


async def _count(connection: asyncpg.Connection[Any], table: str) -> int:
    if not await connection.fetchval(EXISTS, f'"{table}"'):
        return 0
    count: int = await connection.fetchval(f'SELECT count(*) FROM "{table}"')  # noqa: S608
    return count
