"""Files that are typed in, on two real engines that have learnt the suffix behind the prefix: where their requests go,
what is computed again, and what was computed ahead."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from tests.deployment import Deployment, deployment
from tests.e2e.failures.scrape import scrape, total
from tests.engines.embedded.engine_process import TOKEN, Process, healthy
from tests.psm_model import write_psm_model
from tests.waiting import eventually

SUFFIX = "\n" + "".join(f"\n\ndef later_{number}(value):\n    return value - {number}\n" for number in range(60))
"""Some 900 tokens."""


def head(file: int) -> str:
    """What stands above the cursor: more than a file is known by."""
    return f"# file {file}\n" + "".join(f"import module_{file}_{number}\n" for number in range(60))


class Typist:
    """Asks as llama.vim does. models: `ahead` has its next lines computed ahead, `plain` has not."""

    def __init__(self, session: aiohttp.ClientSession, running: Deployment) -> None:
        self._session = session
        self.running = running

    async def types(self, model: str, file: int, lines: str, suffix: str = SUFFIX) -> Any:
        """One keystroke's answer, with `timings`, and the request id in `id`."""
        above, _, line = lines.rpartition("\n")
        above += "\n" if "\n" in lines else ""
        body = {
            "input_prefix": head(file) + above,
            "prompt": line,
            "input_suffix": suffix,
            "n_predict": 4,
            "model": model,
        }
        async with self._session.post("/infill", json=body) as response:
            answer = await response.json(content_type=None)
            assert response.status == 200, answer
            return {**answer, "id": response.headers["x-request-id"]}

    async def warmed_up(self, count: int) -> None:
        """Return once so many next lines were computed ahead."""

        async def all_computed() -> bool:
            samples = await scrape(self.running)
            return total(samples, "slipstream_warm_ups_total", outcome="computed") >= count

        await eventually(all_computed)


@contextlib.asynccontextmanager
async def typing(folder: Path) -> AsyncIterator[Typist]:
    model = write_psm_model(folder / "psm")
    processes: list[Process] = []
    try:
        for _ in range(2):
            processes.append(Process(model=str(model), name="psm"))
        await asyncio.gather(*map(healthy, processes))
        replicas = tuple(Replica(f"engine-{number}", one.url) for number, one in enumerate(processes))
        models = [
            Model(
                name,
                Tier.AUTOCOMPLETE,
                "pool",
                8_192,
                tokenizer=str(model),
                engine_model="psm",
                fim=FillInTheMiddle(warm_up=warm),
            )
            for name, warm in (("plain", False), ("ahead", True))
        ]
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode([Pool("pool", "embedded", replicas)]).decode(),
        }
        async with deployment(environment=environment, token=TOKEN) as running:
            headers = {"authorization": f"Bearer {running.key}"}
            async with aiohttp.ClientSession(running.url, headers=headers) as session:
                yield Typist(session, running)
    finally:
        for process in processes:
            process.child.terminate()
            process.end()


@pytest.mark.nightly
async def test_files_stay_where_they_are_kept_and_next_lines_are_there_before_they_are_typed(tmp_path: Path) -> None:
    async with typing(tmp_path) as typist:
        # every file has its replica, and a keystroke costs what was typed
        asked: dict[int, list[str]] = defaultdict(list)
        for typed in range(1, 5):
            for file in range(4):
                answer = await typist.types("plain", file, "value = compute("[: 4 * typed])
                asked[file].append(answer["id"])
                if typed > 1:
                    assert answer["timings"]["prompt_n"] <= 16 + 8, "no more than a page and what was typed"
        rows = await typist.running.ledger(*(request_id for ids in asked.values() for request_id in ids))
        places = {row["request_id"]: row["replica_id"] for row in rows}
        assert all(len({places[request_id] for request_id in ids}) == 1 for ids in asked.values())
        samples = await scrape(typist.running)
        assert total(samples, "slipstream_file_prefilled_again_tokens_count", model="plain") == 12
        assert (
            total(samples, "slipstream_kv_survival_total", kv="kept")
            == 12
            == total(samples, "slipstream_kv_survival_total")
        )

        # a new line costs the suffix, unless it was computed while nobody typed
        served, again = {}, {}
        for number, model in enumerate(("plain", "ahead")):
            served[model] = await typist.types(model, 10 + number, "x = 1")
            if model == "ahead":
                await typist.warmed_up(1)
            line = "x = 1" + served[model]["content"] + "\n"
            again[model] = (await typist.types(model, 10 + number, line + "    "))["timings"]["prompt_n"]
        assert again["plain"] >= 600
        assert again["ahead"] <= 16 + 8

        # and the books are the engines': in them, on nobody's bill
        [row] = await typist.running.ledger(served["ahead"]["id"])
        assert row["billed"]

        async def booked() -> list[dict[str, Any]]:
            return [row for row in await typist.running.ledger() if row["endpoint"] == "warm_up"]

        async def shipped() -> bool:
            return bool(await booked())

        await eventually(shipped)
        [row, *_] = await booked()
        assert (row["billed"], row["amount_micro"], row["outcome"]) == (False, 0, "exact")
        assert row["prompt_tokens"] > 900
