"""What one tenant or a stranger does costs the others' keys nothing: no flushed memory, no line to wait in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from contracts.errors import InvalidKey, TenantDisabled
from gateway.auth.key_record import Reason
from gateway.auth.keyring import Keyring
from gateway.auth.keys import MintedKey, mint
from tests.gateway.auth.tenant import PEPPER, Tenant
from tests.gateway.auth.test_announced import CHANGES
from tests.waiting import eventually

FLOOD = 2_000


async def test_a_refusal_is_forgotten_with_its_tenants_change(
    tenant: Tenant, neighbour: Tenant, keyring_at: Callable[..., Any]
) -> None:
    minted = await tenant.add()
    await tenant.connection.execute(CHANGES[Reason.PROJECT_DISABLED], tenant.project_id)
    keyring: Keyring = await keyring_at()
    with pytest.raises(TenantDisabled):
        await keyring.identify(minted.secret)
    await tenant.connection.execute("UPDATE gateway.projects SET disabled_at = NULL WHERE id = $1", tenant.project_id)

    async def opens() -> bool:
        try:
            await keyring.identify(minted.secret)
        except TenantDisabled:
            return False
        return True

    await eventually(opens)


async def test_a_tenants_change_makes_nobody_elses_key_be_read_again(
    tenant: Tenant, neighbour: Tenant, keyring_at: Callable[..., Any]
) -> None:
    """Both are being read when one tenant's project changes: only that tenant's answer may be the old one."""
    ours, theirs = await tenant.add(), await neighbour.add()
    keyring: Keyring = await keyring_at()
    read, go_on = asyncio.Event(), asyncio.Event()
    asked: list[bytes] = []
    ask = keyring._lookups._read

    async def slowly(hashes: Sequence[bytes]) -> Any:
        asked.extend(hashes)
        found = await ask(hashes)
        read.set()
        await go_on.wait()
        return found

    keyring._lookups._read = slowly
    asking = [asyncio.create_task(keyring.identify(minted.secret)) for minted in (ours, theirs)]
    await read.wait()
    await tenant.connection.execute(CHANGES["models"], tenant.project_id)
    await eventually(lambda: any(question.heard for question in keyring._lookups._questions))
    go_on.set()
    records = await asyncio.gather(*asking)
    assert records[0].models == frozenset({"m"})
    assert sorted(asked) == sorted([ours.hash, ours.hash, theirs.hash])


async def test_a_flood_of_unknown_keys_costs_a_few_questions_and_keeps_nobody_waiting(
    tenant: Tenant, keyring_at: Callable[..., Any]
) -> None:
    minted = await tenant.add()
    flood = [mint(PEPPER) for _ in range(FLOOD)]
    keyring: Keyring = await keyring_at(lookup_timeout_s=60)
    questions: list[int] = []
    at_the_answer: list[int] = []
    ask = keyring._lookups._read

    async def counted(hashes: Sequence[bytes]) -> Any:
        questions.append(len(hashes))
        if minted.hash in hashes:
            at_the_answer.append(len(questions))
        return await ask(hashes)

    keyring._lookups._read = counted
    asking = [asyncio.create_task(_refusal(keyring, each)) for each in flood]
    honest = asyncio.create_task(keyring.identify(minted.secret))
    assert (await honest).caller.project_id == str(tenant.project_id)
    assert all(await asyncio.gather(*asking))
    # One after another they would be 2,001, with the honest one last.
    assert sum(questions) == FLOOD + 1
    assert len(questions) <= (FLOOD + 1) // 500 + 1
    assert at_the_answer
    assert keyring.cached(minted.secret) is not None


async def test_keys_of_every_kind_answered_together_are_answered_as_alone(
    tenant: Tenant, neighbour: Tenant, keyring_at: Callable[..., Any]
) -> None:
    """The batch against its plain twin: each key asked about by itself."""
    live, revoked, rotated, other = [await each.add() for each in (tenant, tenant, tenant, neighbour)]
    await tenant.revoke(revoked)
    new = mint(PEPPER)
    await tenant.connection.execute(
        "UPDATE gateway.api_keys SET previous_hash = hash, hash = $2, previous_expires_at = now() + interval '1 hour'"
        " WHERE hash = $1",
        rotated.hash,
        new.hash,
    )
    await neighbour.connection.execute(
        "INSERT INTO gateway.limits (level, subject_id, max_concurrency) VALUES ('project', $1, 3)",
        neighbour.project_id,
    )
    keyring: Keyring = await keyring_at()
    hashes = [minted.hash for minted in (mint(PEPPER), live, revoked, rotated, new, other)]
    together = await keyring._ask(hashes)
    alone = [await keyring._ask([each]) for each in hashes]
    assert together is not None
    assert [together[each] for each in hashes] == [one[each] for one, each in zip(alone, hashes, strict=True) if one]


async def _refusal(keyring: Keyring, minted: MintedKey) -> bool:
    try:
        await keyring.identify(minted.secret)
    except InvalidKey:
        return True
    return False
