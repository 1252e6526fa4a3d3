"""Privileges of the application's database role: it may do all that gateways and workers do, but not alter records.

It owns nothing, so it can neither alter nor drop a table nor disable a trigger. It may only add and read rows of the
audit log and of the ledger. At every start, the role that owns the tables grants these privileges again.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from contracts.errors import ConfigError
from storage.engine import checked

MISSING_ROLE = "42704"
"""SQLSTATE with which `granting` refuses a role that the database does not have."""
# All other tables may be read and written. The ledger's days need no privileges: they are accessed through their parent
# table, for which INSERT and SELECT are enough.
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
    """The role that a database URL names; None if it leaves that to the server."""
    return urlsplit(checked(url)).username


def role_to_grant(url: str, application_url: str | None) -> str | None:
    """The application's role, if it does not own the tables itself."""
    role = None if application_url is None else role_of(application_url)
    return None if role == role_of(url) else role


def granting(role: str) -> str:
    """The statements that grant `role` what the application needs, and revoke all other privileges. They fail with
    MISSING_ROLE if the role does not exist. Run them in a transaction."""
    quoted = role.replace("'", "''")
    return f"SELECT set_config('slipstream.role', '{quoted}', true);\n{GRANT}"


def missing(role: str) -> ConfigError:
    """The error for a role that the database does not have."""
    return ConfigError(
        f"local.database_url: the database has no role {role!r}; make it, owning nothing: CREATE ROLE {role} LOGIN",
        param="local.database_url",
    )
