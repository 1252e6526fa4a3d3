"""What the application's database role may do: all that gateways and workers do, and nothing to what stands written.

It owns nothing, so it can neither alter nor drop a table nor switch a trigger off. Rows of the audit log and of the
ledger it may add and read. Granted again with every start, by the role that owns the tables.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from contracts.errors import ConfigError

MISSING_ROLE = "42704"
"""By this SQLSTATE `granting` refuses a role that the database does not have."""
# Every table but these may be read and written. The days of the ledger get nothing: they are reached through their
# parent, for which INSERT and SELECT are enough.
GRANT = """
DO $$
DECLARE
    role text := current_setting('slipstream.role');
    statement text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
        RAISE EXCEPTION 'the database has no role %', role USING ERRCODE = '42704';
    END IF;
    IF to_regnamespace('gateway') IS NULL THEN
        RETURN;
    END IF;
    FOR statement IN
        SELECT format(template, nspname, role)
          FROM pg_namespace,
               unnest(ARRAY['REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I',
                            'GRANT USAGE ON SCHEMA %I TO %I',
                            'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I']) AS template
         WHERE nspname IN ('gateway', 'evals')
        UNION ALL
        SELECT format('GRANT %s ON %s TO %I',
                      CASE relname
                          WHEN 'audit_log' THEN 'SELECT, INSERT'
                          WHEN 'usage_events' THEN 'SELECT, INSERT'
                          WHEN 'usage_retired_days' THEN 'SELECT'
                          WHEN 'slipstream_version' THEN 'SELECT'
                          ELSE 'SELECT, INSERT, UPDATE, DELETE'
                      END, pg_class.oid::regclass, role)
          FROM pg_class
         WHERE relkind IN ('r', 'p') AND NOT relispartition
           AND (relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('gateway', 'evals'))
                AND relname !~ '^usage_events_'
                OR relname = 'slipstream_version' AND pg_table_is_visible(oid))
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$;
"""


def role_of(url: str) -> str | None:
    """The role a database URL names; None when it leaves that to the server."""
    return urlsplit(url).username


def role_to_grant(url: str, application_url: str | None) -> str | None:
    """The application's role, where it is another one than that which owns the tables."""
    role = None if application_url is None else role_of(application_url)
    return None if role == role_of(url) else role


def granting(role: str) -> str:
    """The statements that give `role` what the application needs in the tables there are, and take what it had beyond
    that. They fail with MISSING_ROLE when there is no such role. Within a transaction."""
    quoted = role.replace("'", "''")
    return f"SELECT set_config('slipstream.role', '{quoted}', true);\n{GRANT}"


def missing(role: str) -> ConfigError:
    """The error for a role that the database does not have."""
    return ConfigError(
        f"local.database_url: the database has no role {role!r}; make it, owning nothing: CREATE ROLE {role} LOGIN",
        param="local.database_url",
    )
