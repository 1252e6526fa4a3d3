"""People with well-formed admin keys that are none: what they can take from those whose keys are good."""

from __future__ import annotations

import asyncio

import aiohttp
import asyncpg
import pytest

from contracts.errors import InvalidKey
from control.api.api import AdminApi
from control.api.config import AdminConfig
from control.api.unknown_keys import KEPT_S, MAX, UnknownKeys
from control.operations import OPERATIONS
from gateway.auth.keys import ADMIN_PREFIX, mint
from gateway.serving.model_catalog import ModelCatalog
from storage.roles import Role
from tests.control.api.people import Client, People
from tests.control.api.test_read_places import waiting_for_locks
from tests.waiting import GUARD_S, eventually

ME = next(operation for operation in OPERATIONS if operation.name == "get_me")
STRANGERS = 200
"""Fewer than one address may have connections."""


async def test_an_unknown_key_is_asked_about_once(people: People, admin_postgres_url: str) -> None:
    stranger, other = mint(people.pepper, ADMIN_PREFIX).secret, mint(people.pepper, ADMIN_PREFIX).secret
    catalog = ModelCatalog()
    api = AdminApi(admin_postgres_url, people.pepper, AdminConfig(timeout_s=GUARD_S), catalog)
    await api.start()
    locker = await asyncpg.connect(admin_postgres_url)
    try:
        with pytest.raises(InvalidKey):
            await api.admit(ME, stranger)
        async with locker.transaction():
            await locker.execute("LOCK TABLE gateway.admin_keys IN ACCESS EXCLUSIVE MODE")
            asking = asyncio.create_task(api.admit(ME, other))
            await eventually(lambda: waiting_for_locks(locker))  # the table cannot be read
            for _ in range(3):
                with pytest.raises(InvalidKey):
                    await api.admit(ME, stranger)
            assert not asking.done()
        with pytest.raises(InvalidKey):
            await asking
    finally:
        await locker.close()
        await api.stop()
        catalog.close()


async def test_good_keys_are_answered_among_many_strangers_of_their_address(people: People) -> None:
    """`tests/gateway/http/test_pace.py` shows on a clock of its own that the strangers wait, and the others do not."""
    owner, viewer = await people.owner(), await people.as_(Role.VIEWER)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        strangers = [
            asyncio.create_task(
                Client(session, people.url, mint(people.pepper, ADMIN_PREFIX).secret).ask("GET", "/me"),
            )
            for _ in range(STRANGERS)
        ]
        await asyncio.wait(strangers, return_when=asyncio.FIRST_COMPLETED)
        me = await owner.get("/me")
        denied = await viewer.ask("POST", "/organizations")
        answers = await asyncio.gather(*strangers)
    assert me["organization_id"] == str(people.organizations["ours"])
    assert denied.status == 403
    assert {answer.status for answer in answers} == {401}


def test_unknown_keys_are_forgotten_in_time_and_by_number() -> None:
    now_s = 0.0
    unknown = UnknownKeys(lambda: now_s)
    unknown.add(b"first")
    assert b"first" in unknown
    assert b"second" not in unknown
    now_s = KEPT_S
    assert b"first" not in unknown
    unknown.add(b"first")
    for number in range(MAX):
        unknown.add(number.to_bytes(4))
    assert len(unknown) == MAX
    assert b"first" not in unknown
    assert (MAX - 1).to_bytes(4) in unknown
