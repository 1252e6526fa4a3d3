"""What a body of the admin API may hold."""

from __future__ import annotations

import aiohttp

from tests.gateway.admin.lone_gateway import LoneGateway, lone_gateway
from tests.gateway.admin.people import Client, People


async def test_the_settings_bound_admin_bodies_and_say_so_in_words_of_their_own(
    people: People, admin_gateway: LoneGateway, admin_postgres_url: str, valkey_url: str
) -> None:
    """The defaults did, and told an administrator to send fewer messages."""
    operator = await people.operator()
    async with (
        lone_gateway(
            admin_postgres_url,
            valkey_url,
            pepper=admin_gateway.pepper,
            SLIPSTREAM_GATEWAY__REQUESTS__MAX_CONTAINERS="100",
            SLIPSTREAM_GATEWAY__REQUESTS__MAX_VALUES="1000",
        ) as gateway,
        aiohttp.ClientSession() as session,
    ):
        client = Client(session, gateway.url, operator.secret)
        for name, said in (([[]] * 101, "100 objects and lists"), ([0] * 1_001, "1000 values")):
            answer = await client.ask("POST", "/organizations", {"name": name})
            assert answer.status == 413
            message = answer.body["error"]["message"]
            assert message == f"The body has more than {said}, the most that is taken. Split it into several requests."
        assert (await client.ask("POST", "/organizations", {"name": [[]] * 50})).status == 400, "no name, but small"
