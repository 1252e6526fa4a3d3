"""`slipstream releases start` reaches every margin that the API has."""

from __future__ import annotations

import asyncio
import functools

import asyncpg
import msgspec
import pytest

from control.releases import store
from control.releases.margins import Margins
from tests.control.releases.fleets import FLEET, put_fleet, started
from tests.slipstream.shell import Shell
from tests.waiting import eventually

GIVEN = {
    "--tolerance": ("0.2", 0.2),
    "--error-margin": ("0.01", 0.01),
    "--goodput-margin": ("0.03", 0.03),
    "--alpha": ("0.1", 0.1),
    "--promotion-alpha": ("0.02", 0.02),
    "--least": ("10,20,30", [10, 20, 30]),
    "--quantiles": ("0.5,0.75,0.9", [0.5, 0.75, 0.9]),
    "--promoted-quantile": ("0.75", 0.75),
    "--cold-requests": ("0", 0),
    "--max-sessions": ("5000", 5_000),
    "--min-votes": ("0", 0),
}
"""In the order of the fields of `Margins`, a default by a zero among them."""


async def test_every_margin_has_an_option(shell: Shell, fresh_postgres_url: str) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    await put_fleet(connection)
    await connection.close()
    options = [word for option, (value, _) in GIVEN.items() for word in (option, value)]
    own = ("--slice", "json", "--slice", "facts", "--slice-margin", "json=0.03", "--slice-margin", "0.025")
    answer = await shell.must("releases", "start", "--model", "m", "--candidate", "new", *options, *own, "--json")
    found = msgspec.json.decode(answer)
    assert found["margins"] == dict(zip(Margins.__struct_fields__, (value for _, value in GIVEN.values()), strict=True))
    assert found["slice_rule"] == {
        "margin": 0.025,
        "margins": {"json": 0.03},
        "budget_items": 1_600,
        "correlation": 0.05,
    }
    shown = await shell.must("releases", "show", "m")
    assert "may be 2.5 points lower (json 3); at most 1,600 items of each" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--quantiles", "0.9,0.5"), "'quantiles': 0.9, 0.5. Give them in ascending order, without repeats."),
        (("--promoted-quantile", "0.42"), "'promoted_quantile': 0.42. It is one of quantiles, 0.25, 0.5"),
        (("--quantiles", "p99"), "--quantiles: 'p99' is not a list of numbers"),
        (("--error-margin", "0"), "error_margin"),
    ],
)
async def test_a_margin_that_cannot_be_is_refused_by_name(
    shell: Shell, fresh_postgres_url: str, options: tuple[str, ...], said: str
) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    await put_fleet(connection)
    await connection.close()
    code, refusal = await shell.run("releases", "start", "--model", "m", "--candidate", "new", *options)
    assert (code, said in refusal) == (1, True), refusal


async def test_a_candidate_on_another_kind_of_engine_is_started_and_told(shell: Shell, fresh_postgres_url: str) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    other = tuple(msgspec.structs.replace(pool, driver="vllm") if pool.name == "new" else pool for pool in FLEET.pools)
    await put_fleet(connection, msgspec.structs.replace(FLEET, pools=other))
    await connection.close()
    answer = await shell.must("releases", "start", "--model", "m", "--candidate", "new")
    shown = await shell.must("releases", "show", "m")
    for said in (answer, shown):
        told = "warning The candidate's engines are of another kind (new: vllm) than the baseline's"
        assert told in " ".join(said.split())


async def test_a_release_is_read_and_replayed_without_its_lock(shell: Shell, fresh_postgres_url: str) -> None:
    """A reader with the lock would stop its judge, and a rollback by hand, for as long as it reads."""
    worker, watch = [await asyncpg.connect(fresh_postgres_url) for _ in range(2)]
    release = await started(worker)

    async def outcome(reading: asyncio.Task[tuple[int, str]]) -> str:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return "ended" if reading.done() else "waits" if await watch.fetchval(waiting) else ""

    async with worker.transaction():
        await store.locked(worker, release.id)
        readings = [asyncio.create_task(shell.run("releases", name, "m")) for name in ("show", "replay")]
        found = [await eventually(functools.partial(outcome, reading)) for reading in readings]
    assert found == ["ended", "ended"]
    assert [(await reading)[0] for reading in readings] == [0, 0]
    await worker.close()
    await watch.close()
