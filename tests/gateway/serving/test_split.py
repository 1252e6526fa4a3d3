"""What a split model's requests carry: their session's number, their side's cache salt, where they were measured."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.desired_state import Canary, Model
from contracts.generation import Tier
from contracts.split import Side, side_of
from engines.drivers import registry as drivers
from gateway.serving.request import Arrival, InferenceRequest
from gateway.wire.prepared import Prepared, Target
from tests.gateway.serving.harness import CHAT, COMPLETION, KEY

SPLIT = Canary("new", 0.3, control=True, release="r")


def target(canary: Canary | None = SPLIT) -> Target:
    return Target(Model("m", Tier.CHAT, "pool", 4_096, canary=canary), drivers.get("sglang").capabilities, None)


async def prepared(*said: str, canary: Canary | None = SPLIT, **fields: Any) -> Prepared:
    """A chat of these turns, the user's first."""
    turns = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
    asked = CHAT.decode(msgspec.json.encode({"model": "m", "messages": turns, **fields}))
    return await CHAT.prepare(asked, "id", KEY.caller, "salt", target(canary))


async def on(side: Side, canary: Canary = SPLIT) -> Prepared:
    """Some request of that side."""
    tried = [await prepared(f"turn {number}", canary=canary) for number in range(40)]
    return next(each for each in tried if side_of(target(canary).model, each.unit) is side)


async def test_a_conversation_without_a_name_is_known_by_how_it_began() -> None:
    first = await prepared("hi")
    assert (await prepared("hi", "hello", "and now?")).unit == first.unit
    assert (await prepared("ho")).unit != first.unit
    named = await prepared("hi", user="u")
    assert named.unit == (await prepared("something else", user="u")).unit != first.unit


async def test_a_text_that_grows_stays_on_its_side() -> None:
    async def unit(prompt: str) -> int:
        asked = COMPLETION.decode(msgspec.json.encode({"model": "m", "prompt": prompt}))
        return (await COMPLETION.prepare(asked, "id", KEY.caller, "salt", target())).unit

    beginning = "x" * 1_024
    assert await unit(beginning) == await unit(beginning + "more") != await unit("y" + beginning)


async def test_only_the_control_arm_on_the_models_own_engines_has_a_salt_of_its_own() -> None:
    whole = await prepared("hi", canary=None)
    assert (whole.generation.cache_salt, whole.unit) == ("salt", 0)
    assert (await on(Side.CANDIDATE)).generation.cache_salt == "salt"
    control = await on(Side.CONTROL)
    assert control.generation.cache_salt not in ("", "salt")
    named = [await prepared("x" * 1_000, user=f"u{number}") for number in range(40)]
    chains = {side_of(target().model, each.unit): each.chain for each in named}
    assert chains[Side.CONTROL] != chains[Side.BASELINE] == chains[Side.CANDIDATE], "it must not expect their prefixes"
    assert control.salt == "salt"
    other = msgspec.structs.replace(SPLIT, release="another")
    assert (await on(Side.CONTROL, other)).generation.cache_salt not in ("salt", control.generation.cache_salt)
    apart = msgspec.structs.replace(SPLIT, control_pool="fresh")
    assert (await on(Side.CONTROL, apart)).generation.cache_salt == "salt"


async def test_what_ran_elsewhere_than_its_side_is_served_is_not_compared() -> None:
    for side, pool in ((Side.CANDIDATE, "new"), (Side.CONTROL, "pool")):
        request = InferenceRequest(Arrival(CHAT, {}), KEY, target(), await on(side))
        assert (request.side_on(pool), request.compared_on(pool)) == (side, "r")
        assert (request.side_on("another"), request.compared_on("another")) == (Side.BASELINE, None)
    whole = InferenceRequest(Arrival(CHAT, {}), KEY, target(None), await prepared("hi", canary=None))
    assert (whole.side_on("pool"), whole.compared_on("pool")) == (None, None)
