"""Sign-in by password, refused with the same message after the same time whether the account exists or not."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from contracts.errors import Conflict, PermissionDenied, RateLimited, ServiceError, SignInRefused, TotpRequired
from control.api.sealed import unseal
from control.console import attempts, second_factor
from control.console.accounts import Account, by_id, of_address
from control.console.attempts import Subject
from control.console.console import ConsoleCall
from control.console.hash_queue import QueueFull
from control.console.schema import ConsoleSession, SignIn, SignInMethod
from control.console.sessions import acting, begin, show

REFUSAL_S = 0.5
"""A refusal takes this long, whether it checked no hash, one or several."""
REFUSED = "The e-mail address, the password or the organization is wrong, or there is no such account."
MISSING = "This account also requires a code from its authenticator. Send it as 'totp'."
WRONG = "The code is wrong or was used already; wait for the next one, or use a recovery code."
REHASH = "UPDATE gateway.console_accounts SET password_hash = $2 WHERE id = $1 AND password_hash = $3"
TAKE_STEP = """
UPDATE gateway.console_accounts SET totp_last_step = $2
 WHERE id = $1 AND (totp_last_step IS NULL OR totp_last_step < $2) RETURNING true
"""
TAKE_RECOVERY = """
UPDATE gateway.console_accounts SET recovery_hashes = array_remove(recovery_hashes, $2)
 WHERE id = $1 AND $2 = ANY (recovery_hashes) RETURNING true
"""


async def sign_in(call: ConsoleCall, body: SignIn) -> ConsoleSession:
    """Sign in by e-mail address and password, and a code if the account requires one.

    The session gets a cookie with a new token, and the browser's previous session ends. Failed attempts cost pauses, by
    address and by network.
    """
    call.visit.require_own_page()
    if not call.console.config.passwords:
        raise PermissionDenied("Signing in with a password is switched off here; sign in with your identity provider.")
    loop = asyncio.get_running_loop()
    until = loop.time() + REFUSAL_S
    address, network = subjects(call, body.email)
    await count(call, address, network)

    async def enter(connection: asyncpg.Connection[Any], account: Account, *, alone: bool) -> None:
        async with acting(call, connection, account) as admin:
            now = await by_id(connection, account.id, lock=True)
            now.require_enabled()
            await _still_opens(call, now, account, body.password)
            if now.totp:
                await take_code(call, connection, now, body.totp)
            await begin(call, connection, admin, now, SignInMethod.PASSWORD)
        await attempts.succeeded(connection, address, network, alone=alone)

    try:
        account, alone = await _account(call, body)
        await call.work(lambda connection: enter(connection, account, alone=alone))
    except QueueFull:  # this network helped to fill the queue: its attempt stays counted
        await _forgive(call, address)
        raise
    except (Conflict, RateLimited, ServiceError):  # the password fits several accounts, or was not checked
        await _forgive(call, address, network)
        raise
    except (SignInRefused, TotpRequired) as error:
        if isinstance(error, TotpRequired) and body.totp is None:  # the password is right, and the page asks for a code
            await _forgive(call, address, network)
        await asyncio.sleep(max(0.0, until - loop.time()))
        raise
    return await show(call, account)


async def confirm_password(call: ConsoleCall, account: Account, password: str, param: str) -> None:
    """Require the signed-in account's password; attempts are counted like sign-ins. Raises SignInRefused, and Conflict
    for an account without a password."""
    if account.password_hash is None:
        raise Conflict("This account has no password. Sign in with your identity provider.")
    address, network = subjects(call, account.email)
    await count(call, address, network)
    try:
        right = await call.console.passwords.fits(account.password_hash, password, call.queue_key)
    except ServiceError:
        await _forgive(call, address, network)
        raise
    if not right:
        raise SignInRefused("The password is wrong.", param=param)
    await _forgive(call, address, network)


async def take_code(call: ConsoleCall, connection: asyncpg.Connection[Any], account: Account, code: str | None) -> None:
    """Use up a code of the authenticator, or a recovery code. Raises TotpRequired if the code is missing, wrong or was
    used before."""
    if code is None:
        raise TotpRequired(MISSING, param="totp")
    step = step_of(call, account, code)
    if step is not None:
        taken = await connection.fetchval(TAKE_STEP, account.id, step)
    else:
        hashed = second_factor.recovery_hash(call.console.pepper, account.id, code)
        taken = await connection.fetchval(TAKE_RECOVERY, account.id, hashed)
    if not taken:
        raise TotpRequired(WRONG, param="totp")


def step_of(call: ConsoleCall, account: Account, code: str) -> int | None:
    """The time step of a code; None if it belongs to no step near now."""
    assert account.totp_secret is not None
    secret = unseal(call.console.pepper, totp_use(account.id), account.totp_secret).decode()
    return second_factor.step_of(secret, code)


def totp_use(account_id: object) -> str:
    """The purpose for which an authenticator's secret is sealed."""
    return f"console totp:{account_id}"


def subjects(call: ConsoleCall, email: str) -> tuple[Subject, Subject]:
    """The groups in which this attempt is counted."""
    pepper = call.console.pepper
    return Subject.address(pepper, email), Subject.network(pepper, call.visit.network)


async def count(call: ConsoleCall, *counted: Subject) -> None:
    """Count an attempt as failed until it succeeds. Raises RateLimited."""

    async def take(connection: asyncpg.Connection[Any]) -> None:
        await attempts.take(connection, list(counted), call.console.config.lockout_s)

    await call.work(take)


async def _forgive(call: ConsoleCall, *counted: Subject) -> None:
    """Give back an attempt that did not fail."""

    async def give_back(connection: asyncpg.Connection[Any]) -> None:
        await attempts.given_back(connection, *counted)

    await call.work(give_back)


async def _still_opens(call: ConsoleCall, now: Account, verified: Account, password: str) -> None:
    """Require that the locked account still has the verified password: the account may have been reset while the hash
    was queued. Raises SignInRefused."""
    if now.password_hash == verified.password_hash:
        return
    # a newer hash of the same password is accepted
    if not await call.console.passwords.fits(now.password_hash, password, call.queue_key):
        raise SignInRefused(REFUSED)


async def _account(call: ConsoleCall, body: SignIn) -> tuple[Account, bool]:
    """The account with this address and password, and whether it is the only one with the address. Raises
    SignInRefused, Conflict if they open several, TenantDisabled."""
    passwords = call.console.passwords

    async def find(connection: asyncpg.Connection[Any]) -> list[Account]:
        return await of_address(connection, body.email, None)

    known = await call.work(find)
    candidates = [each for each in known if body.organization_id in (None, each.organization_id)]
    matching = [each for each in candidates if await passwords.fits(each.password_hash, body.password, call.queue_key)]
    if not candidates:
        await passwords.fits(None, body.password, call.queue_key)
    if not matching:
        raise SignInRefused(REFUSED)
    if len(matching) > 1:
        named = ", ".join(f"{each.organization_name!r} ({each.organization_id})" for each in matching)
        raise Conflict(
            f"This address and password are valid in several organizations: {named}. Send the id of one as "
            "'organization_id'.",
            param="organization_id",
        )
    (account,) = matching
    account.require_enabled()
    assert account.password_hash is not None
    if passwords.outdated(account.password_hash):
        renewed = await passwords.hash(body.password, call.queue_key)

        async def rehash(connection: asyncpg.Connection[Any]) -> None:
            await connection.execute(REHASH, account.id, renewed, account.password_hash)

        await call.work(rehash)
    return account, len(known) == 1
