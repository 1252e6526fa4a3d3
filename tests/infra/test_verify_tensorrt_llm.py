"""The script that holds a real server against the list says "ok" of the one that our tests run against, and each of its
checks finds what differs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.tensorrt_llm import FakeTensorRTLLM, Generation, fake_tensorrt_llm
from tests.fakes.tensorrt_llm_front import FakeFront, fake_front
from tests.infra.differing_servers import (
    OF_BOTH,
    OF_FRONTS,
    OF_PASSED_ON,
    OF_THE_NEWER,
    OF_THE_OLDER,
    Differing,
    alter,
    rounds,
)  # fmt: skip

SCRIPT = Path(__file__).parents[2] / "infra" / "verify" / "tensorrt_llm.sh"
MAX_BATCH = 4
PAGE = ("which counts requests", "and no tokens")
pytestmark = pytest.mark.nightly
eras = pytest.mark.parametrize("era", ["1.2", "1.4"])
DIFFERING: dict[Generation, list[list[Differing]]] = {
    "1.2": rounds([*OF_BOTH, *OF_THE_OLDER]),
    "1.4": rounds([*OF_BOTH, *OF_THE_NEWER]),
}


async def verified(url: str, *arguments: str) -> tuple[int, list[tuple[str, str]]]:
    """Its exit status, and the first word and the rest of each line."""
    process = await asyncio.create_subprocess_exec(str(SCRIPT), url, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode is not None
    lines = [line.partition(" ") for line in output.decode().splitlines()]
    return process.returncode, [(word, rest.strip()) for word, _, rest in lines]


def checks(said: list[tuple[str, str]], word: str) -> list[str]:
    """Those of which it said this."""
    return [rest.partition(": expected")[0] for first, rest in said if first == word]


@contextlib.asynccontextmanager
async def server(era: Generation) -> AsyncIterator[tuple[FakeTensorRTLLM, str]]:
    """Goes on for twenty seconds where it is asked to."""
    async with fake_tensorrt_llm(era, max_batch=MAX_BATCH) as (fake, url):
        fake.script.tokens = 4_000
        fake.script.token_s = 0.005
        yield fake, url


@contextlib.asynccontextmanager
async def front(era: Generation) -> AsyncIterator[tuple[FakeFront, str]]:
    """Before one server that is both halves."""
    async with fake_tensorrt_llm(era) as (fake, worker), fake_front(era, [worker], [worker]) as (passing, url):
        fake.script.tokens = 100
        yield passing, url


@eras
async def test_the_imitation_does_what_is_asked_of_the_real_one(era: Generation) -> None:
    async with server(era) as (_, url):
        status, said = await verified(url, "llama-70b", str(MAX_BATCH))
    assert status == 0, said
    assert not checks(said, "DIFFERS")
    assert not checks(said, "skip"), "each check was made"
    differing = {check for each in DIFFERING[era] for one in each for check in one.found}
    assert set(checks(said, "ok")) == differing, "each check has a server that fails it"


@pytest.mark.parametrize(
    ("era", "number"), [(era, number) for era, made in DIFFERING.items() for number in range(len(made))]
)
async def test_each_check_finds_what_differs(era: Generation, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    differing = DIFFERING[era][number]
    async with server(era) as (fake, url):
        for one in differing:
            one.make(fake, monkeypatch)
        status, said = await verified(url, "llama-70b", str(MAX_BATCH))
    found, sought = set(checks(said, "DIFFERS")), {check for one in differing for check in one.found}
    assert sought <= found, said
    assert found <= sought | {check for one in differing for check in one.perhaps}, said
    assert status == len(found)


async def test_what_cannot_be_known_is_skipped_and_said() -> None:
    """The older server tells its batch size nowhere."""
    async with server("1.2") as (_, url):
        status, said = await verified(url)
    assert status == 0, said
    assert [rest.partition(":")[0] for rest in checks(said, "skip")] == ["maxNumActiveRequests is the batch size"]


@eras
async def test_a_front_is_asked_for_what_a_front_does(era: Generation) -> None:
    async with front(era) as (_, url):
        assert (await verified(url))[0] == 64, "it lists no models"
        status, said = await verified(url, "llama-70b")
    assert status == 0, said
    assert not checks(said, "DIFFERS")
    assert set(checks(said, "ok")) == of_fronts(era), "each check has a front that fails it"


def of_fronts(era: Generation) -> set[str]:
    """Checks of a front; the older has no page of metrics."""
    return {check for check, _, _ in OF_FRONTS if era == "1.4" or check not in PAGE} | OF_PASSED_ON.keys()


@eras
async def test_each_check_of_a_front_finds_what_differs(era: Generation) -> None:
    def rewritten(some: bytes) -> bytes:
        for change in OF_PASSED_ON.values():
            some = change(some)
        return some

    async with front(era) as (passing, url):
        passing.rewritten = rewritten
        for check, path, change in OF_FRONTS:
            if check in of_fronts(era):
                alter(passing, path, change)
        _, said = await verified(url, "llama-70b")
    assert set(checks(said, "DIFFERS")) == of_fronts(era), said
