"""Customers that leave at any moment, on every dialect: what engines worked off is billed, and counts in the limits."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.billing.customer import End, ask
from tests.billing.dialects import CACHED_TOKENS, DIALECTS, FINAL_COUNT, PLAIN, PROMPT_TOKENS, Dialects, Key, asked

CUSTOMERS, AT_ONCE, MAX_TOKENS = 150, 10, 12
TTFT_S, INTER_TOKEN_S = 0.02, 0.004
LEAVING = 0.75


class Crowd:
    """Customers of one model: more at once than it has places, so that some leave the queue."""

    def __init__(self, platform: Dialects, model: str, key: Key, seed: int) -> None:
        self._platform = platform
        self._model = model
        self._key = key
        self._choose = random.Random(seed)
        self._left_to_come = CUSTOMERS
        self.ends: Counter[End] = Counter()
        self.read_tokens = 0
        """Tokens that customers have seen."""

    async def pass_by(self) -> None:
        await asyncio.gather(*(self._stand_in_line() for _ in range(AT_ONCE)))

    async def _stand_in_line(self) -> None:
        while self._left_to_come:
            self._left_to_come -= 1
            choose, tokens = self._choose, self._choose.randint(1, MAX_TOKENS)
            stream = choose.random() < 0.7
            leave_after = patience_s = None
            if choose.random() < LEAVING:
                if stream and choose.random() < 0.5:
                    # 0: at once. The first event has no token, and the finishing one comes with the last
                    leave_after = choose.randint(0, tokens + 1)
                else:
                    patience_s = choose.uniform(0, 2 * TTFT_S + tokens * INTER_TOKEN_S)
            request = asked(self._key, self._model, tokens, stream=stream)
            customer = await ask(self._platform.running.port, request, leave_after, patience_s)
            end = customer.ended.result()
            assert end in (End.ANSWERED, End.LEFT), (customer.status, customer._whole, customer._tail)
            self.ends[end] += 1
            if stream:
                self.read_tokens += min(tokens, max(0, customer.events - 1))
            elif end is End.ANSWERED:
                self.read_tokens += tokens


@pytest.mark.parametrize("seed", [1, 2])
async def test_whenever_customers_leave_the_work_is_billed_and_counted(platform: Dialects, seed: int) -> None:
    while True:
        began = datetime.now(UTC).date()
        await everyone_leaves(platform, seed)
        if datetime.now(UTC).date() == began:
            break  # else the tokens of a day were counted in two


async def everyone_leaves(platform: Dialects, seed: int) -> None:
    await platform.script(ttft_s=TTFT_S, inter_token_s=INTER_TOKEN_S)
    keys = {model: await platform.key(1_000_000) for model in DIALECTS}
    crowds = {model: Crowd(platform, model, keys[model], seed) for model in DIALECTS}
    await asyncio.gather(*(crowd.pass_by() for crowd in crowds.values()))
    for model in DIALECTS:
        rows = await platform.rows(keys[model])
        records = await platform.engines[model].wait(requests=0)
        assert all(record["finished"] or record["disconnected"] for record in records)
        _, counted = await platform.left(keys[model])
        check(model, crowds[model], rows, records, counted)


def check(model: str, crowd: Crowd, rows: list[dict[str, Any]], records: list[dict[str, Any]], counted: int) -> None:
    """Prints what was worked off, billed and counted, and compares."""
    prompt, output = (sum(row[name] for row in rows) for name in ("prompt_tokens", "completion_tokens"))
    worked = sum(record["tokens"] for record in records)
    print(
        f"{model:<10}{len(rows)} attempts, {len(records)} reached the engine, {crowd.ends[End.LEFT]} left; "
        f"prompt {PROMPT_TOKENS * len(records):,} worked off, {prompt:,} billed; "
        f"output {worked:,} worked off, {crowd.read_tokens:,} read, {output:,} billed; {counted:,} counted"
    )
    assert crowd.ends[End.LEFT] > CUSTOMERS / 3
    assert len(records) > CUSTOMERS / 3
    # nothing is free: every row with tokens is billed, and nothing else
    assert all(row["billed"] == (row["prompt_tokens"] + row["completion_tokens"] > 0) for row in rows)
    assert counted == prompt + output
    assert prompt >= PROMPT_TOKENS * len(records)
    assert crowd.read_tokens <= output <= worked
    known = {row["finish"]: row["outcome"] for row in rows if row["finish"] in ("complete", "not_placed")}
    assert set(known.values()) <= {"exact"}
    assert all(row["cached_tokens"] == 0 for row in rows if model == PLAIN)
    if model in FINAL_COUNT:
        exact = {row["request_id"]: row for row in rows}
        for record in records:
            row = exact[record["rid"]]
            assert (row["outcome"], row["billed"]) == ("exact", True)
            assert (row["prompt_tokens"], row["cached_tokens"]) == (PROMPT_TOKENS, CACHED_TOKENS)
            assert row["completion_tokens"] == record["tokens"]
        assert prompt == PROMPT_TOKENS * len(records)
        assert output == worked
