"""Changes to one's own account: its password, authenticator and membership. A new password, and an authenticator that
comes into force or is removed, give the session another token."""

from __future__ import annotations

from typing import Any

import asyncpg

from contracts.errors import Conflict, TotpRequired
from control.api.call import AdminCall
from control.api.sealed import seal
from control.console import passwords, second_factor
from control.console.accounts import Account, by_id, of_session
from control.console.attempts import given_back
from control.console.console import ConsoleCall
from control.console.schema import (
    ConsoleSession,
    PasswordChange,
    PasswordConfirmed,
    RecoveryCodes,
    TotpConfirmation,
    TotpConfirmed,
    TotpDisabling,
    TotpEnrolment,
)
from control.console.sessions import acting, end_all, renew, show
from control.console.sign_in import TAKE_STEP, WRONG, confirm_password, count, step_of, subjects, take_code, totp_use
from control.tenants.members import MEMBERS

PUT_PASSWORD = "UPDATE gateway.console_accounts SET password_hash = $2 WHERE id = $1"
PUT_SECRET = """
UPDATE gateway.console_accounts SET totp_secret = $2, totp_last_step = NULL WHERE id = $1 AND totp_confirmed_at IS NULL
RETURNING true
"""
CONFIRM = "UPDATE gateway.console_accounts SET totp_confirmed_at = now(), recovery_hashes = $2 WHERE id = $1"
FORGET = """
UPDATE gateway.console_accounts
   SET totp_secret = NULL, totp_confirmed_at = NULL, totp_last_step = NULL, recovery_hashes = '{}' WHERE id = $1
"""
PUT_RECOVERY = "UPDATE gateway.console_accounts SET recovery_hashes = $2 WHERE id = $1"
HAS_ONE = "This account already has an authenticator. Disable it before you set up another one."
HAS_NONE = "This account has no authenticator."


async def change_password(call: ConsoleCall, body: PasswordChange) -> ConsoleSession:
    """Change one's password. All other sessions of the account end."""
    account = await _signed_in(call)
    await confirm_password(call, account, body.current_password, "current_password")
    passwords.check(body.new_password, "new_password", account.email, account.name)
    password_hash = await call.console.passwords.hash(body.new_password, call.queue_key)

    async def change(connection: asyncpg.Connection[Any]) -> None:
        async with acting(call, connection, account) as admin:
            await _locked(call, connection, account)
            await connection.execute(PUT_PASSWORD, account.id, password_hash)
            _changed(admin, account, "password")
            await end_all(connection, admin, account, call.token)
            await renew(call, connection)

    await call.work(change)
    return await show(call, account)


async def enrol_totp(call: ConsoleCall, body: PasswordConfirmed) -> TotpEnrolment:
    """Begin to set up an authenticator: a secret for it, which is in force when a code of it was confirmed."""
    account = await _signed_in(call)
    if account.totp:
        raise Conflict(HAS_ONE)
    await confirm_password(call, account, body.password, "password")
    secret = second_factor.new_secret()
    sealed = seal(call.console.pepper, totp_use(account.id), secret.encode())

    async def put(connection: asyncpg.Connection[Any]) -> None:
        async with acting(call, connection, account) as admin:
            await _locked(call, connection, account)
            if await connection.fetchval(PUT_SECRET, account.id, sealed) is None:
                raise Conflict(HAS_ONE)
            _changed(admin, account, "authenticator begun")

    await call.work(put)
    return TotpEnrolment(secret=secret, uri=second_factor.uri(secret, account.email))


async def confirm_totp(call: ConsoleCall, body: TotpConfirmation) -> TotpConfirmed:
    """Put the authenticator in force by a code of it: from now on sign-in requires one. Returns recovery codes."""
    account = await _signed_in(call)
    await count(call, *subjects(call, account.email))
    codes = second_factor.recovery_codes()

    async def confirm(connection: asyncpg.Connection[Any]) -> None:
        async with acting(call, connection, account) as admin:
            now = await _locked(call, connection, account)
            if now.totp or now.totp_secret is None:
                raise Conflict(HAS_ONE if now.totp else "No authenticator is being set up; begin with POST totp.")
            step = step_of(call, now, body.code)
            if step is None or not await connection.fetchval(TAKE_STEP, now.id, step):
                raise TotpRequired(WRONG, param="code")
            await connection.execute(CONFIRM, now.id, _hashed(call, now, codes))
            _changed(admin, now, "authenticator")
            await renew(call, connection)
        await given_back(connection, *subjects(call, account.email))

    await call.work(confirm)
    return TotpConfirmed(recovery_codes=codes, session=await show(call, account))


async def disable_totp(call: ConsoleCall, body: TotpDisabling) -> ConsoleSession:
    """Forget the authenticator and its recovery codes: the password alone signs in."""
    account = await _signed_in(call)
    await confirm_password(call, account, body.password, "password")
    await count(call, *subjects(call, account.email))

    async def disable(connection: asyncpg.Connection[Any]) -> None:
        async with acting(call, connection, account) as admin:
            now = await _locked(call, connection, account)
            if not now.totp:
                raise Conflict(HAS_NONE)
            await take_code(call, connection, now, body.code)
            await connection.execute(FORGET, now.id)
            _changed(admin, now, "no authenticator")
            await renew(call, connection)
        await given_back(connection, *subjects(call, account.email))

    await call.work(disable)
    return await show(call, account)


async def renew_recovery_codes(call: ConsoleCall, body: PasswordConfirmed) -> RecoveryCodes:
    """New recovery codes; those before open nothing any more."""
    account = await _signed_in(call)
    await confirm_password(call, account, body.password, "password")
    codes = second_factor.recovery_codes()

    async def put(connection: asyncpg.Connection[Any]) -> None:
        async with acting(call, connection, account) as admin:
            now = await _locked(call, connection, account)
            if not now.totp:
                raise Conflict(HAS_NONE)
            await connection.execute(PUT_RECOVERY, now.id, _hashed(call, now, codes))
            _changed(admin, now, "recovery codes")

    await call.work(put)
    return RecoveryCodes(recovery_codes=codes)


async def leave_organization(call: ConsoleCall) -> ConsoleSession:
    """Remove the signed-in member from the organization, with the member's admin keys and sessions.

    The last owner stays. It needs no permission: an organization can add any address to its members.
    """
    account = await _signed_in(call)

    async def leave(connection: asyncpg.Connection[Any]) -> None:
        async with acting(call, connection, account) as admin:
            await MEMBERS.remove(admin, account.member_id)

    await call.work(leave)
    call.forget()
    return await show(call, None)


async def _signed_in(call: ConsoleCall) -> Account:
    token = call.require_session()

    async def find(connection: asyncpg.Connection[Any]) -> Account:
        return await of_session(connection, token.hash, call.console.idle)

    return await call.work(find)


async def _locked(call: ConsoleCall, connection: asyncpg.Connection[Any], account: Account) -> Account:
    """The current account, locked until the end of the transaction. Raises SessionEnded if the session has ended: while
    a hash is queued, a reset of the account may end it."""
    await by_id(connection, account.id, lock=True)
    assert call.token is not None
    return await of_session(connection, call.token.hash, call.console.idle)


def _hashed(call: ConsoleCall, account: Account, codes: list[str]) -> list[bytes]:
    return [second_factor.recovery_hash(call.console.pepper, account.id, code) for code in codes]


def _changed(admin: AdminCall, account: Account, what: str) -> None:
    admin.audit(
        "console_account.update",
        account.id,
        organization_id=account.organization_id,
        after={"account_id": account.id, "member_id": account.member_id, "changed": what},
    )
