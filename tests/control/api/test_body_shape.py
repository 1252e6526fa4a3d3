"""What a body of the admin API may hold."""

from __future__ import annotations

import aiohttp

from tests.control.api.lone_gateway import LoneGateway
from tests.control.api.people import Client, People


async def test_the_settings_bound_admin_bodies_and_say_so_in_words_of_their_own(
    people: People, other_gateway: LoneGateway
) -> None:
    """Bounds of `other_gateway`; the defaults held once, in words about messages."""
    operator = await people.operator()
    async with aiohttp.ClientSession() as session:
        client = Client(session, other_gateway.url, operator.secret)
        for name, said in (([[]] * 101, "100 objects and lists"), ([0] * 1_001, "1000 values")):
            answer = await client.ask("POST", "/organizations", {"name": name})
            assert answer.status == 413
            message = answer.body["error"]["message"]
            assert message == f"The body has more than {said}, which is the limit. Split it into several requests."
        assert (await client.ask("POST", "/organizations", {"name": [[]] * 50})).status == 400, "no name, but small"
