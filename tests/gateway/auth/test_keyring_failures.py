"""Keys while the way to PostgreSQL breaks: nothing revoked is accepted, and nobody is refused longer than needed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from contracts.errors import AuthError, AuthUnavailable, RevokedKey
from gateway.auth.key_record import KeyRecord
from gateway.auth.keyring import Keyring
from tests.gateway.auth.tenant import Tenant
from tests.gateway.auth.wire import Wire
from tests.waiting import GUARD_S, eventually


async def test_a_killed_listener_reconnects_and_has_missed_nothing(
    tenant: Tenant, keyring_at: Callable[..., Any]
) -> None:
    keyring, other = await keyring_at(), await keyring_at()
    minted = await tenant.add()
    await keyring.identify(minted.secret)
    await other.identify(minted.secret)
    killed = await tenant.listeners()
    assert len(killed) == 2
    async with tenant.connection.transaction():
        # Killed and revoked in one transaction: the announcement comes when nobody listens.
        await tenant.connection.fetch("SELECT pg_terminate_backend(pid, 5000) FROM unnest($1::int[]) pid", killed)
        await tenant.revoke(minted)
    for each in (keyring, other):
        await eventually(lambda: each.cached(minted.secret) is None)  # noqa: B023  awaited here
        with pytest.raises(RevokedKey):
            await each.identify(minted.secret)
        await eventually(lambda: each.trusted)  # noqa: B023  awaited here

    async def both_are_back() -> bool:
        return await tenant.listening_besides(*killed) == 2

    await eventually(both_are_back)


async def test_a_stopped_listener_backend_ends_trust_and_the_database_answers(
    tenant: Tenant, keyring_at: Callable[..., Any]
) -> None:
    """SIGSTOP: the connection stays open and silent, the worst case for whoever waits for a notification."""
    keyring = await keyring_at(heartbeat_s=0.02, trust_s=0.2, heartbeat_timeout_s=0.5)
    minted = await tenant.add()
    await keyring.identify(minted.secret)

    async def only_listener() -> int | None:  # none, or one that ends, where a heartbeat on a busy machine was late
        found = await tenant.listeners()
        return found[0] if len(found) == 1 else None

    stopped = await eventually(only_listener)
    os.kill(stopped, signal.SIGSTOP)
    try:
        await tenant.revoke(minted)
        await eventually(lambda: keyring.cached(minted.secret) is None)
        with pytest.raises(RevokedKey):
            await keyring.identify(minted.secret)
        await eventually(lambda: keyring.trusted)  # through a new connection

        async def one_listens() -> bool:
            return await tenant.listening_besides(stopped) == 1

        await eventually(one_listens)
    finally:
        os.kill(stopped, signal.SIGCONT)


async def refusal(keyring: Keyring, secret: str) -> type[Exception] | None:
    """What a key is refused by; None as long as the database has not answered in time, which a busy one may not."""
    try:
        await keyring.identify(secret)
    except AuthUnavailable:
        return None
    except AuthError as error:
        return type(error)
    raise AssertionError("the key is good")


async def known(keyring: Keyring, secret: str) -> KeyRecord | None:
    """None as long as the database has not answered in time."""
    with contextlib.suppress(AuthUnavailable):
        return await keyring.identify(secret)
    return None


async def test_a_held_wire_fails_closed_and_heals(tenant: Tenant, wire: Wire, keyring_at: Callable[..., Any]) -> None:
    """Everything hangs, nothing is refused: as with a frozen server or a lost network."""
    changes = {"heartbeat_s": 0.05, "trust_s": 0.3, "heartbeat_timeout_s": 0.3, "lookup_timeout_s": 0.3}
    keyring: Keyring = await keyring_at(wire.url, **changes)
    minted, revoked = await tenant.add(), await tenant.add()
    for secret in (minted.secret, revoked.secret):
        await eventually(lambda secret=secret: known(keyring, secret))  # type: ignore[misc]
    wire.hold()
    await tenant.revoke(revoked)
    await eventually(lambda: not keyring.trusted)
    for secret in (minted.secret, revoked.secret):
        assert keyring.cached(secret) is None
        with pytest.raises(AuthUnavailable):
            await keyring.identify(secret)
    wire.flowing.set()
    assert await eventually(lambda: refusal(keyring, revoked.secret)) is RevokedKey
    record = await eventually(lambda: known(keyring, minted.secret))
    assert record.caller.project_id == str(tenant.project_id)


async def test_a_cut_wire_fails_closed_and_heals(tenant: Tenant, wire: Wire, keyring_at: Callable[..., Any]) -> None:
    """The server is gone: what a restart looks like from here."""
    keyring = await keyring_at(wire.url, heartbeat_s=0.05, trust_s=0.3)
    minted, revoked = await tenant.add(), await tenant.add()
    await keyring.identify(minted.secret)
    await keyring.identify(revoked.secret)
    await wire.cut()
    await tenant.revoke(revoked)
    await eventually(lambda: not keyring.trusted)
    with pytest.raises(AuthUnavailable):
        await keyring.identify(minted.secret)
    await wire.connect()
    await eventually(lambda: keyring.trusted)
    assert keyring.cached(revoked.secret) is None
    with pytest.raises(RevokedKey):
        await keyring.identify(revoked.secret)
    await keyring.identify(minted.secret)


async def test_stop_does_not_wait_for_a_server_that_hangs(
    tenant: Tenant, wire: Wire, keyring_at: Callable[..., Any]
) -> None:
    before = asyncio.all_tasks()
    keyring = await keyring_at(wire.url, lookup_timeout_s=0.2)
    minted = await tenant.add()
    wire.hold()
    asking = asyncio.create_task(keyring.identify(minted.secret))
    async with asyncio.timeout(GUARD_S):
        await wire.asked.wait()
        await keyring.stop()
        with pytest.raises(AuthUnavailable):
            await asking
    wire.flowing.set()
    await wire.cut()
    await eventually(lambda: asyncio.all_tasks() <= before)
