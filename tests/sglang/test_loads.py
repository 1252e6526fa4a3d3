"""What the real SGLang says in `/v1/loads` against what runs and waits there, and what the driver makes of it."""

from __future__ import annotations

import asyncio

import pytest

from engines.drivers.base import Load
from engines.tokenizer.tokenizer import Tokenizer
from tests.real_engine import GUARD_S, ask, finishes, read_all
from tests.sglang.client import CHAT, DRIVER, ENDLESS, Client
from tests.sglang.conftest import PLACES

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]
CAPACITY_TOKENS = 20_000
"""That the script gives it."""
LONGEST = 4_000


async def test_load_is_what_runs_what_waits_and_what_that_holds(narrow: Client) -> None:
    idle = await narrow.until_load(lambda load: not load.running + load.waiting + load.used_tokens)
    assert idle == Load(capacity_tokens=CAPACITY_TOKENS, max_running=PLACES)
    prompt_tokens = len(Tokenizer.load(narrow.server.folder).chat_ids(CHAT.messages))
    asked = [ask(CHAT, max_tokens=LONGEST, logit_bias=ENDLESS) for _ in range(PLACES + 2)]
    # what waits has no answer yet, not even its beginning
    answers = [asyncio.create_task(narrow.events(one)) for one in asked]
    full = await narrow.until_load(lambda load: (load.running, load.waiting) == (PLACES, 2))
    # the prompt is one for both, for it is cached; the answers are not
    more = await narrow.until_load(lambda load: load.used_tokens > full.used_tokens + prompt_tokens)
    assert (more.capacity_tokens, more.max_running) == (CAPACITY_TOKENS, PLACES)
    assert more.used_tokens <= PLACES * (prompt_tokens + LONGEST)
    for one in asked:
        await narrow.fetch(DRIVER.abort(one.request_id))
    # one that still waited may be refused instead
    ended = [one for one in await asyncio.gather(*answers, return_exceptions=True) if isinstance(one, list)]
    assert len(ended) >= PLACES
    assert all(finishes(one) == ["abort"] for one in ended)
    await narrow.until_load(lambda load: load == idle)


async def test_what_is_cached_and_could_be_evicted_counts_for_nothing(narrow: Client) -> None:
    await narrow.idle()
    stream = await narrow.open(ask(CHAT, max_tokens=200, logit_bias=ENDLESS))
    await asyncio.wait_for(read_all(stream), GUARD_S)
    await narrow.until_load(lambda load: load == Load(capacity_tokens=CAPACITY_TOKENS, max_running=PLACES))
    assert (await narrow.usage(ask(CHAT))).cached_tokens > 0
