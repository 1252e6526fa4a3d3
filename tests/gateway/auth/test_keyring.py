"""Who a key belongs to, from memory and from PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from contracts.errors import AuthUnavailable, ConfigError, ExpiredKey, InvalidKey, RevokedKey
from gateway.auth.config import AuthConfig
from gateway.auth.key_record import KeyRecord, Refusal
from gateway.auth.keyring import Keyring
from gateway.auth.keys import mint
from storage.engine import connect
from tests.databases import as_owner
from tests.gateway.auth.tenant import PEPPER, Tenant
from tests.gateway.auth.wire import Wire
from tests.waiting import eventually


class Clock:
    """A clock that stands still until moved."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Lookups(list[str]):
    """Outcomes of the questions asked to the database."""

    def __init__(self, keyring: Keyring) -> None:
        super().__init__()
        read = keyring._lookups._read

        async def noting(hashes: Sequence[bytes]) -> Mapping[bytes, KeyRecord | Refusal] | None:
            answers = await read(hashes)
            for each in hashes:
                answer = None if answers is None else answers[each]
                self.append(
                    answer.reason.value if isinstance(answer, Refusal) else "known" if answer else "unavailable"
                )
            return answers

        keyring._lookups._read = noting


async def test_a_known_key_is_looked_up_once(tenant: Tenant, keyring_at: Callable[..., Any]) -> None:
    minted = await tenant.add()
    keyring = await keyring_at()
    lookups = Lookups(keyring)
    assert keyring.cached(minted.secret) is None
    record = await keyring.identify(minted.secret)
    assert record.caller.project_id == str(tenant.project_id)
    (rule,) = record.levels.rules
    assert rule.limits.tokens_per_minute == 1000
    assert rule.limits.requests_per_minute is None
    assert record.expires_at is None
    assert keyring.cached(minted.secret) is record
    assert await keyring.identify(minted.secret) is record
    assert lookups == ["known"]


async def test_callers_who_miss_together_share_one_question(tenant: Tenant, keyring_at: Callable[..., Any]) -> None:
    minted = await tenant.add()
    keyring = await keyring_at()
    lookups = Lookups(keyring)
    waiting = [asyncio.create_task(keyring.identify(minted.secret)) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # who began it leaves; the others must still be answered
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert len({id(answer) for answer in answers[1:]}) == 1
    assert lookups == ["known"]


async def test_unknown_and_revoked_keys_are_remembered_until_they_change(
    tenant: Tenant, keyring_at: Callable[..., Any]
) -> None:
    unknown, revoked = mint(PEPPER), await tenant.add()
    await tenant.revoke(revoked)
    keyring = await keyring_at()
    lookups = Lookups(keyring)
    for _ in range(3):
        with pytest.raises(InvalidKey, match="does not exist"):
            await keyring.identify(unknown.secret)
        with pytest.raises(RevokedKey):
            await keyring.identify(revoked.secret)
    assert keyring.cached(unknown.secret) is None
    assert keyring.cached(revoked.secret) is None
    assert lookups == ["unknown", "revoked"]

    await tenant.add(unknown)
    await tenant.restore(revoked)
    await eventually_identified(keyring, unknown.secret)
    await eventually_identified(keyring, revoked.secret)


async def eventually_identified(keyring: Keyring, secret: str) -> None:
    async def identified() -> bool:
        try:
            await keyring.identify(secret)
        except (InvalidKey, RevokedKey):
            return False
        return True

    await eventually(identified)


async def test_a_malformed_key_never_reaches_the_database(keyring_at: Callable[..., Any]) -> None:
    keyring = await keyring_at()
    lookups = Lookups(keyring)
    for secret in ("", "sk-slip-", "sk-slip-" + "0" * 38, "sk-slip-" + "\udcff" * 38):
        assert keyring.cached(secret) is None
        with pytest.raises(InvalidKey):
            await keyring.identify(secret)
    assert lookups == []


async def test_refusals_in_memory_are_bounded(keyring_at: Callable[..., Any]) -> None:
    keyring = await keyring_at(cached_refusals=3)
    lookups = Lookups(keyring)
    unknown = [mint(PEPPER).secret for _ in range(5)]
    for secret in unknown + unknown[-3:] + unknown[:1]:
        with pytest.raises(InvalidKey):
            await keyring.identify(secret)
    assert len(lookups) == 6  # five new ones, three from memory, and the first again, which had to go


async def test_expiry_is_checked_on_every_use(tenant: Tenant, keyring_at: Callable[..., Any]) -> None:
    clock = Clock(now=1_000.0)
    minted = await tenant.add(expires_at=2_000.5)
    keyring = await keyring_at(clocks={"clock": clock})
    lookups = Lookups(keyring)
    record = await keyring.identify(minted.secret)
    assert record.expires_at == 2_000.5
    clock.now = 2_000.499
    assert keyring.cached(minted.secret) is record
    clock.now = 2_000.5
    assert keyring.cached(minted.secret) is None
    with pytest.raises(ExpiredKey):
        await keyring.identify(minted.secret)
    assert lookups == ["known"]  # an expired key that insists does not cost a query each time


@pytest.mark.parametrize("change", ["revoke", "delete"])
async def test_a_revocation_reaches_every_keyring(change: str, tenant: Tenant, keyring_at: Callable[..., Any]) -> None:
    minted, bystander = await tenant.add(), await tenant.add()
    keyrings = [await keyring_at() for _ in range(2)]
    for keyring in keyrings:
        await keyring.identify(minted.secret)
        await keyring.identify(bystander.secret)
    await getattr(tenant, change)(minted)
    for keyring in keyrings:
        await eventually(lambda: keyring.cached(minted.secret) is None)  # noqa: B023  awaited here
        with pytest.raises(RevokedKey if change == "revoke" else InvalidKey):
            await keyring.identify(minted.secret)
        assert keyring.cached(bystander.secret) is not None


async def test_changed_limits_reach_a_keyring_and_a_mere_use_does_not_empty_it(
    tenant: Tenant, keyring_at: Callable[..., Any]
) -> None:
    changed, used = await tenant.add(), await tenant.add()
    keyring = await keyring_at()
    await keyring.identify(changed.secret)
    await keyring.identify(used.secret)
    await tenant.connection.execute("UPDATE gateway.api_keys SET last_used_at = now()")
    await tenant.connection.execute(
        "UPDATE gateway.limits SET max_concurrency = 3 FROM gateway.api_keys WHERE id = subject_id AND hash = $1",
        changed.hash,
    )
    await eventually(lambda: keyring.cached(changed.secret) is None)
    assert (await keyring.identify(changed.secret)).levels.rules[0].limits.max_concurrency == 3
    assert keyring.cached(used.secret) is not None


async def test_emptying_the_table_or_moving_a_project_is_heard(
    tenant: Tenant, keyring_at: Callable[..., Any], fresh_postgres_url: str
) -> None:
    minted = await tenant.add()
    keyring = await keyring_at()
    before = await keyring.identify(minted.secret)
    await tenant.connection.execute(
        "WITH o AS (INSERT INTO gateway.organizations (name) VALUES ('other') RETURNING id)"
        " UPDATE gateway.projects SET organization_id = o.id FROM o"
    )
    await eventually(lambda: keyring.cached(minted.secret) is None)
    after = await keyring.identify(minted.secret)
    assert after.caller.organization_id != before.caller.organization_id
    owner = await connect(as_owner(fresh_postgres_url))
    await owner.execute("TRUNCATE gateway.api_keys")
    await owner.close()
    await eventually(lambda: keyring.cached(minted.secret) is None)
    with pytest.raises(InvalidKey):
        await keyring.identify(minted.secret)


async def test_an_answer_from_before_a_revocation_is_not_remembered(
    tenant: Tenant, keyring_at: Callable[..., Any]
) -> None:
    """The race: the row is read as valid, then the key is revoked, then the answer arrives."""
    minted = await tenant.add()
    keyring = await keyring_at()
    read, go_on = asyncio.Event(), asyncio.Event()
    ask = keyring._lookups._read
    answers: list[Any] = []

    async def slowly(hashes: list[bytes]) -> Any:
        found = await ask(hashes)
        answers.append(found[minted.hash])
        read.set()
        await go_on.wait()
        return found

    keyring._lookups._read = slowly
    asking = asyncio.create_task(keyring.identify(minted.secret))
    await read.wait()
    await tenant.revoke(minted)
    await eventually(lambda: any(minted.hash.hex() in question.heard for question in keyring._lookups._questions))
    go_on.set()
    with pytest.raises(RevokedKey):
        await asking
    assert keyring.cached(minted.secret) is None
    with pytest.raises(RevokedKey):
        await keyring.identify(minted.secret)
    assert [type(answer) for answer in answers] == [KeyRecord, Refusal]  # read twice, and the second remembered


async def test_without_proof_memory_is_not_trusted(tenant: Tenant, keyring_at: Callable[..., Any]) -> None:
    """By the clock alone: the heartbeat is set too slow to interfere."""
    clock = Clock(now=50.0)
    minted = await tenant.add()
    keyring = await keyring_at(clocks={"monotonic": clock}, heartbeat_s=59, trust_s=60)
    lookups = Lookups(keyring)
    record = await keyring.identify(minted.secret)
    clock.now = 109.999
    assert keyring.cached(minted.secret) is record
    clock.now = 110.0
    assert keyring.cached(minted.secret) is None
    assert not keyring.trusted
    await keyring.identify(minted.secret)
    assert lookups == ["known", "known"]


async def test_start_without_a_database_refuses_until_it_is_there(
    tenant: Tenant, wire: Wire, keyring_at: Callable[..., Any]
) -> None:
    await wire.cut()
    minted = await tenant.add()
    keyring = await keyring_at(wire.url)
    with pytest.raises(AuthUnavailable) as caught:
        await keyring.identify(minted.secret)
    assert caught.value.retry_after_s == 1.0
    await wire.connect()
    await eventually(lambda: keyring.trusted)
    await keyring.identify(minted.secret)


async def test_last_used_is_written_once_an_interval_by_all_keyrings_together(
    tenant: Tenant, keyring_at: Callable[..., Any]
) -> None:
    clock = Clock(now=1_000_000.0)
    minted, unused = await tenant.add(), await tenant.add()
    for moment in (1_000_000.0, 1_000_030.0, 1_000_061.0):
        clock.now = moment
        keyring = await keyring_at(clocks={"clock": clock})
        await keyring.identify(minted.secret)
        await keyring.stop()
        written = await tenant.connection.fetchval(
            "SELECT extract(epoch FROM last_used_at)::float8 FROM gateway.api_keys WHERE hash = $1", minted.hash
        )
        assert written == (1_000_061.0 if moment > 1_000_060.0 else 1_000_000.0)
    assert await tenant.connection.fetchval(
        "SELECT last_used_at IS NULL FROM gateway.api_keys WHERE hash = $1", unused.hash
    )


async def test_a_last_use_by_a_clock_that_was_ahead_does_not_stay(
    tenant: Tenant, keyring_at: Callable[..., Any]
) -> None:
    minted = await tenant.add()
    ahead = "UPDATE gateway.api_keys SET last_used_at = now() + interval '1 year' WHERE hash = $1"
    await tenant.connection.execute(ahead, minted.hash)
    keyring = await keyring_at()
    await keyring.identify(minted.secret)
    await keyring.stop()
    written = "SELECT last_used_at <= now() FROM gateway.api_keys WHERE hash = $1"
    assert await tenant.connection.fetchval(written, minted.hash)


async def test_stop_leaves_no_task_and_no_connection(tenant: Tenant, keyring_at: Callable[..., Any]) -> None:
    before = asyncio.all_tasks()
    minted = await tenant.add()
    keyring = await keyring_at()
    await keyring.identify(minted.secret)
    await keyring.stop()
    await keyring.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
    assert keyring.cached(minted.secret) is None
    with pytest.raises(AuthUnavailable):
        await keyring.identify(minted.secret)

    async def nobody_listens() -> bool:
        return await tenant.listening_besides() == 0

    await eventually(nobody_listens)


def test_a_heartbeat_slower_than_trust_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.auth\.trust_s: 1 must be above 2, "):
        Keyring("postgresql:///x", PEPPER, AuthConfig(heartbeat_s=2.0))
