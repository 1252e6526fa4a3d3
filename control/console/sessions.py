"""Begins, shows, renews and ends sessions. Each change is a row of the audit log, in the same transaction."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from contracts.errors import NotFound, SessionEnded, TenantDisabled
from control.api.call import AdminCall
from control.api.schemas import Deleted
from control.api.transaction import recorded
from control.console.accounts import Account, by_id, of_session
from control.console.console import ConsoleCall
from control.console.schema import (
    ConsoleAccount,
    ConsoleOrganization,
    ConsoleSession,
    Methods,
    OwnSession,
    OwnSessions,
    Provider,
    SessionsEnded,
    SessionsEnding,
    SignedIn,
    SignInMethod,
)
from control.sessions.token import SessionToken

_NOBODY = (SessionEnded, TenantDisabled)
OIDC_START = "/console/api/oidc/start"
BEGIN = """
INSERT INTO gateway.console_sessions (account_id, token_hash, method, network, user_agent, expires_at)
VALUES ($1, $2, $3, $4, $5, now() + $6::interval) RETURNING id
"""
RENEW = "UPDATE gateway.console_sessions SET token_hash = $2 WHERE token_hash = $1 RETURNING id"
END = "DELETE FROM gateway.console_sessions WHERE token_hash = $1 RETURNING id"
END_ONE = "DELETE FROM gateway.console_sessions WHERE id = $1 AND account_id = $2 RETURNING id"
END_ALL = "DELETE FROM gateway.console_sessions WHERE account_id = $1 AND token_hash IS DISTINCT FROM $2 RETURNING id"
MAX_SESSIONS = 100
"""Limit for one account: a further sign-in ends the oldest."""
END_OLDEST = """
DELETE FROM gateway.console_sessions WHERE id IN
    (SELECT id FROM gateway.console_sessions WHERE account_id = $1 ORDER BY created_at DESC, id OFFSET $2)
RETURNING id
"""
LIVE = """
SELECT id, method, network, user_agent, created_at, last_seen_at, expires_at,
       last_seen_at + $2::interval AS idle_expires_at, token_hash = $3 AS current
  FROM gateway.console_sessions
 WHERE account_id = $1 AND expires_at > now() AND last_seen_at > now() - $2::interval
 ORDER BY created_at DESC, id
"""


async def get_session(call: ConsoleCall) -> ConsoleSession:
    """Get the session: its account, permissions, and the available sign-in methods.

    Returns 200 without a session too: `signed_in` is null.
    """
    if call.token is None:
        if call.console.browsers.carries_session(call.visit):
            call.forget()
        return await show(call, None)

    async def find(connection: asyncpg.Connection[Any]) -> Account:
        assert call.token is not None
        return await of_session(connection, call.token.hash, call.console.idle)

    try:
        account = await call.work(find)
    except _NOBODY:
        call.forget()
        return await show(call, None)
    return await show(call, account)


async def delete_session(call: ConsoleCall) -> ConsoleSession:
    """Sign out."""
    token = call.require_session()

    async def end(connection: asyncpg.Connection[Any]) -> None:
        account = await of_session(connection, token.hash, call.console.idle)
        async with acting(call, connection, account) as admin:
            session_id = await connection.fetchval(END, token.hash)
            ended(admin, account, session_id)

    with contextlib.suppress(*_NOBODY):  # it had ended already
        await call.work(end)
    call.forget()
    return await show(call, None)


async def list_sessions(call: ConsoleCall) -> OwnSessions:
    """List the account's sessions."""
    token = call.require_session()

    async def find(connection: asyncpg.Connection[Any]) -> list[OwnSession]:
        account = await of_session(connection, token.hash, call.console.idle)
        return await _live(connection, account, call.console.idle, token)

    return OwnSessions(data=await call.work(find))


async def end_session(call: ConsoleCall, session_id: UUID) -> Deleted:
    """End one of one's own sessions: the next request of it is refused, on every gateway."""
    token = call.require_session()

    async def end(connection: asyncpg.Connection[Any]) -> None:
        account = await of_session(connection, token.hash, call.console.idle)
        async with acting(call, connection, account) as admin:
            if await connection.fetchval(END_ONE, session_id, account.id) is None:
                raise NotFound(f"There is no session {session_id}.")
            ended(admin, account, session_id)

    await call.work(end)
    return Deleted(id=session_id)


async def end_sessions(call: ConsoleCall, query: SessionsEnding) -> SessionsEnded:
    """Sign out everywhere, or everywhere else."""
    token = call.require_session()

    async def end(connection: asyncpg.Connection[Any]) -> int:
        account = await of_session(connection, token.hash, call.console.idle)
        async with acting(call, connection, account) as admin:
            return await end_all(connection, admin, account, token if query.keep_current else None)

    count = await call.work(end)
    if not query.keep_current:
        call.forget()
    return SessionsEnded(ended=count)


async def begin(
    call: ConsoleCall, connection: asyncpg.Connection[Any], admin: AdminCall, account: Account, method: SignInMethod
) -> None:
    """Begin a session with a new token, in the caller's transaction; the browser's previous session ends."""
    queue_key = call.queue_key
    if call.token is not None:
        await connection.execute(END, call.token.hash)
    for row in await connection.fetch(END_OLDEST, account.id, MAX_SESSIONS - 1):
        ended(admin, account, row["id"])
    token, visit = call.console.browsers.mint(), call.visit
    session_id = await connection.fetchval(
        BEGIN, account.id, token.hash, method.value, visit.network, visit.user_agent, call.console.lifetime
    )
    admin.audit(
        "console_session.create",
        session_id,
        organization_id=account.organization_id,
        after={"account_id": account.id, "member_id": account.member_id, "method": method, "network": visit.network},
    )
    call.keep(token)
    call.console.passwords.queue.succeeded(queue_key, visit.network)


async def renew(call: ConsoleCall, connection: asyncpg.Connection[Any]) -> None:
    """Give the session a new token, so that a leaked earlier one becomes worthless."""
    assert call.token is not None
    token = call.console.browsers.mint()
    await connection.fetchval(RENEW, call.token.hash, token.hash)
    call.keep(token)


async def end_all(
    connection: asyncpg.Connection[Any], admin: AdminCall, account: Account, but: SessionToken | None
) -> int:
    """End an account's sessions except `but`; returns their number."""
    rows = await connection.fetch(END_ALL, account.id, None if but is None else but.hash)
    if not rows:
        return 0
    admin.audit(
        "console_session.delete",
        account.id,
        organization_id=account.organization_id,
        before={"account_id": account.id, "member_id": account.member_id, "sessions": [row["id"] for row in rows]},
    )
    return len(rows)


def ended(admin: AdminCall, account: Account, session_id: UUID | None) -> None:
    """Record for the audit log that a session was ended."""
    admin.audit(
        "console_session.delete",
        session_id,
        organization_id=account.organization_id,
        before={"account_id": account.id, "member_id": account.member_id},
    )


@contextlib.asynccontextmanager
async def acting(call: ConsoleCall, connection: asyncpg.Connection[Any], account: Account) -> AsyncIterator[AdminCall]:
    """A transaction of the account's member, with its rows of the audit log. Raises RateLimited if the member makes too
    many changes."""
    principal = account.principal()
    call.console.admin.writes.take_of_member(principal)
    admin = call.console.admin.call(connection, principal, call.request_id)
    async with recorded(admin, admin.principal.actor(call.request_id)):
        yield admin


async def show(call: ConsoleCall, account: Account | None) -> ConsoleSession:
    """The session as the page gets it. account: as it was read before."""
    config, provider = call.console.config, call.console.provider
    offered = None if provider is None else Provider(name=config.oidc.name, start=OIDC_START)
    methods = Methods(password=config.passwords, oidc=offered)
    token = call.token
    if account is None or token is None:
        return ConsoleSession(signed_in=None, methods=methods)

    async def find(connection: asyncpg.Connection[Any]) -> tuple[Account, list[OwnSession]]:
        now = await by_id(connection, account.id)
        return now, await _live(connection, now, call.console.idle, token)

    now, live = await call.work(find)
    current = next((each for each in live if each.current), None)
    if current is None:  # it ended meanwhile
        call.forget()
        return ConsoleSession(signed_in=None, methods=methods)
    principal = now.principal()
    call.console.admin.callers.learn(token.hash, principal)
    return ConsoleSession(
        signed_in=SignedIn(
            account=ConsoleAccount(
                id=now.id,
                member_id=now.member_id,
                email=now.email,
                name=now.name,
                has_password=now.password_hash is not None,
                totp=now.totp,
                recovery_codes_left=now.recovery_codes_left,
                created_at=now.created_at,
            ),
            organization=ConsoleOrganization(id=now.organization_id, name=now.organization_name),
            operator=now.operator,
            role=now.role,
            permissions=sorted(principal.permissions),
            currency=call.console.admin.currency,
            session=current,
            csrf_token=token.csrf,
        ),
        methods=methods,
    )


async def _live(
    connection: asyncpg.Connection[Any], account: Account, idle: timedelta, token: SessionToken
) -> list[OwnSession]:
    rows = await connection.fetch(LIVE, account.id, idle, token.hash)
    return [msgspec.convert(dict(row), OwnSession) for row in rows]
