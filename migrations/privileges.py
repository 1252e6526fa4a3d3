"""What the application's database role may do: all that gateways and workers do, and nothing to what stands written.

It owns nothing, so it can neither alter nor drop a table nor switch a trigger off. Rows of the audit log and of the
ledger it may add and read. Granted anew with every migration, by the role that owns the tables.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import sqlalchemy
from sqlalchemy.engine import Connection

from contracts.errors import ConfigError

# Every table but these may be read and written. The days of the ledger get nothing: they are reached through their
# parent, for which INSERT and SELECT are enough.
STATEMENTS = sqlalchemy.text("""
SELECT format(statement, nspname, CAST(:role AS text))
  FROM pg_namespace,
       unnest(ARRAY['REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I',
                    'GRANT USAGE ON SCHEMA %I TO %I',
                    'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I']) AS statement
 WHERE nspname IN ('gateway', 'evals')
UNION ALL
SELECT format('GRANT %s ON %s TO %I',
              CASE relname
                  WHEN 'audit_log' THEN 'SELECT, INSERT'
                  WHEN 'usage_events' THEN 'SELECT, INSERT'
                  WHEN 'usage_retired_days' THEN 'SELECT'
                  WHEN 'slipstream_version' THEN 'SELECT'
                  ELSE 'SELECT, INSERT, UPDATE, DELETE'
              END, pg_class.oid::regclass, CAST(:role AS text))
  FROM pg_class
 WHERE relkind IN ('r', 'p') AND NOT relispartition
   AND (relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('gateway', 'evals'))
        AND relname !~ '^usage_events_'
        OR relname = 'slipstream_version' AND pg_table_is_visible(oid))
""")
EXISTS = sqlalchemy.text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :role)")


def role_of(url: str) -> str | None:
    """The role a database URL names; None when it leaves that to the server."""
    return urlsplit(url).username


def grant(connection: Connection, role: str) -> None:
    """Give `role` what the application needs in the tables there are, and take what it had beyond that.

    Raises ConfigError when there is no such role.
    """
    if not connection.execute(EXISTS, {"role": role}).scalar():
        raise ConfigError(
            f"local.database_url: the database has no role {role!r}; make it, owning nothing: CREATE ROLE {role} LOGIN",
            param="local.database_url",
        )
    if connection.execute(sqlalchemy.text("SELECT to_regnamespace('gateway') IS NULL")).scalar():
        return
    for statement in connection.execute(STATEMENTS, {"role": role}).scalars().all():
        connection.exec_driver_sql(statement)
