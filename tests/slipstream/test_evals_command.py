"""What `slipstream evals` tells, on a real database with answers of runs in it."""

from __future__ import annotations

import asyncio
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import asyncpg
import msgspec
import pytest

from control.eval_runs import nights
from control.evals import store
from evals.slices.catalogue import Catalogue
from slipstream import fetched_model
from slipstream.eval_progress import Telling
from tests.console.quality import put_nights
from tests.slipstream.shell import Shell
from tests.waiting import eventually

ANSWERED = """
WITH version AS (INSERT INTO evals.slice_versions (slice, version, about, goal) VALUES ('facts', '1', 'capitals', 0.9)
                 RETURNING id),
     begun AS (UPDATE evals.run_slices SET slice_version_id = version.id FROM version
                WHERE run_id = $1 AND slice = 'facts')
INSERT INTO evals.items (run_id, slice, seed, cluster, answer, score, latency_ms)
SELECT $1, 'facts', seed, 'c', 'a', (seed <= 8)::int, 1 FROM generate_series(1, 10) AS seed
"""
VERDICT = {
    "decision": "fail",
    "reason": "1 of 1 slices worse: facts",
    "slices": [
        {"slice": "facts", "decision": "fail", "reason": "it is worse", "difference": -0.25, "lower": -0.31,
         "upper": -0.11, "margin": 0.02, "n": 200},
    ],
}  # fmt: skip


async def test_the_fetched_model_is_asked_what_it_could_pass_or_fail(shell: Shell) -> None:
    made: dict[str, Any] = msgspec.json.decode(
        await shell.must("evals", "run", "--model", fetched_model.NAME, "--items", "2", "--no-wait", "--json")
    )
    assert made["items"] == 2 * len(fetched_model.SLICES)
    assert set(fetched_model.SLICES) <= set(Catalogue().names)
    made = msgspec.json.decode(await shell.must("evals", "run", "--items", "2", "--no-wait", "--json"))
    assert (made["model"], made["items"] > 2 * len(fetched_model.SLICES)) == ("slipstream-chat", True)


async def test_a_run_is_shown_slice_by_slice_with_intervals(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    asked = ("--model", "chat", "--slices", "facts,lists", "--items", "20")
    made: dict[str, Any] = msgspec.json.decode(await shell.must("evals", "run", *asked, "--no-wait", "--json"))
    assert (made["status"], made["items"], made["pool"]) == ("queued", 40, None)
    await connection.execute(ANSWERED, made["id"])
    lines = (await shell.must("evals", "show", made["id"])).splitlines()
    # Wilson's interval of 8 of 10
    assert lines[1].split() == "facts capitals 0.800 0.490 to 0.943 10 of 20 0.90, missed".split()
    assert lines[2].split() == ["lists", "-", "-", "0", "of", "20", "-"]
    assert lines[3].startswith("the goals are for slipstream-chat and slipstream-code; compare another model with its")
    assert lines[5] == f"chat, as routed: queued, 10 of 40 items answered, run {made['id']}"
    assert not any("refused" in line for line in lines)
    in_full = msgspec.json.decode(await shell.must("evals", "show", made["id"], "--json"))
    assert in_full["slices"][0]["score_sum"] == 8
    assert await shell.must("evals", "cancel", made["id"]) == f"{made['id']}: cancelled"
    (line,) = (await shell.must("evals", "list")).splitlines()[1:]
    assert line.split()[2:] == ["run", "chat", "as", "routed", "cancelled", "10", "of", "40", made["id"]]
    await connection.execute("UPDATE evals.items SET error_code = 'context_length_exceeded' WHERE seed > 7")
    (refused,) = [line for line in (await shell.must("evals", "show", made["id"])).splitlines() if "refused" in line]
    assert refused.startswith("facts: 3 items were refused and count as wrong; `slipstream evals show ")
    assert f"{made['id']} --items --slice facts --wrong --data " in refused
    code, said = await shell.run("evals", "cancel", made["id"])
    assert (code, said) == (1, f"The run {made['id']} has ended: it is cancelled.")


async def test_who_waits_for_a_run_that_ends_otherwise_is_told_by_the_exit_code(
    shell: Shell, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []

    class Noted(Telling):
        def next(self, *values: Any) -> str | None:
            told.append(super().next(*values))
            return told[-1]

    monkeypatch.setattr("slipstream.eval_progress.SILENT_S", 0.0)
    monkeypatch.setattr("slipstream.commands.evals.Telling", Noted)
    waiting = asyncio.create_task(shell.run("evals", "run", "--model", "chat", "--slices", "facts"))

    async def begun() -> uuid.UUID | None:
        assert not waiting.done()
        run_id: uuid.UUID | None = await connection.fetchval("SELECT id FROM evals.runs")
        return run_id if len(told) >= 2 else None

    run_id = await eventually(begun)
    await store.cancel_run(connection, run_id)
    code, said = await waiting
    assert said.splitlines()[0] == "100 items of the slice facts; all are asked; a run does not end early"
    assert said.splitlines()[2].startswith("  no worker has started it for ")
    assert "`slipstream status --data " in said.splitlines()[2]
    assert (code, said.splitlines()[-1]) == (1, f"chat, as routed: cancelled, 0 of 100 items answered, run {run_id}")


async def test_a_comparison_that_cannot_pass_or_is_of_one_pool_is_told_so_before_it_is_asked(shell: Shell) -> None:
    few = ("old", "new", "--model", "chat", "--slices", "facts, lists", "--budget", "5", "--no-wait")
    said = (await shell.must("evals", "compare", *few)).splitlines()[0]
    assert said.startswith("facts, lists cannot pass: equal answers to 5 items show a difference of no less than 45.")
    budget = re.search(r"--budget (\d+)", said)
    assert budget is not None
    both = ("old", "old", *few[2:6], "--budget", budget[1], "--no-wait")
    same, told = (await shell.must("evals", "compare", *both)).splitlines()[:2]
    assert same == "both sides are the pool old: this measures the gate, not a candidate"
    assert "cannot pass" not in told


async def test_a_comparison_is_shown_with_its_verdict(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    asked = ("old", "new", "--model", "chat", "--slices", "facts", "--margin", "0.05", "--budget", "400", "--no-wait")
    made: dict[str, Any] = msgspec.json.decode(await shell.must("evals", "compare", *asked, "--json"))
    assert (made["rule"]["margin"], made["rule"]["alpha"], made["budget_items"]) == (0.05, 0.05, 400)
    await connection.execute(
        "UPDATE evals.comparisons SET status = 'done', decision = 'fail', verdict = $2 WHERE id = $1",
        made["id"],
        msgspec.json.encode(VERDICT).decode(),
    )
    assert (await store.comparison(connection, made["id"])).verdict == VERDICT
    lines = (await shell.must("evals", "show", made["id"])).splitlines()
    assert lines[1].startswith("facts  fail      -0.250      -0.310 and -0.110  0.050"[:40])
    assert lines[3] == "chat, pool new against old: fail: 1 of 1 slices worse: facts"
    (line,) = (await shell.must("evals", "list")).splitlines()[1:]
    assert line.split()[2:] == ["comparison", "chat", "old,", "new", "fail", made["id"]]


async def test_a_slice_may_have_a_margin_of_its_own_and_a_zero_is_not_taken_for_the_default(shell: Shell) -> None:
    facts = ("evals", "compare", "old", "new", "--model", "chat", "--no-wait", "--slices", "facts")
    asked = ("old", "new", "--model", "chat", "--slices", "facts,json", "--margin", "json=0.03", "--margin", "0.01")
    made = msgspec.json.decode(await shell.must("evals", "compare", *asked, "--no-wait", "--json"))
    assert (made["rule"]["margin"], made["rule"]["margins"]) == (0.01, {"json": 0.03})
    for options, told in (
        (("--margin", "json=0.03"), "names the slice 'json', which is not asked"),
        (("--margin", "0"), "margin"),
        (("--alpha", "0"), "alpha"),
        (("--first-look", "0"), "first_look"),
    ):
        code, said = await shell.run(*facts, *options)
        assert (code, told in said) == (1, True), said


async def test_what_is_not_there_is_said_with_what_is(shell: Shell) -> None:
    assert await shell.must("evals", "list") == "there are no runs yet"
    code, said = await shell.run("evals", "run", "--slices", "fact", "--no-wait")
    assert (code, said.partition(";")[0]) == (1, "--slices: there is no slice 'fact'")
    start = ("releases", "start", "--model", "m", "--candidate", "new")
    code, said = await shell.run(*start, "--slice", "fact")
    assert (code, said.partition(";")[0]) == (1, "There is no slice 'fact'")
    code, said = await shell.run(*start, "--slice", "json")
    assert (code, "--slice-margin json=0.022" in said) == (1, True)
    code, said = await shell.run(*start, "--slice-margin", "json=x")
    refusal = "--slice-margin: 'json=x' is neither a share such as 0.02 nor the share of a slice such as json=0.022"
    assert (code, said) == (1, refusal)
    own = ("--slice", "json", "--slice", "facts", "--slice-margin", "json=0.022", "--slice-margin", "0.02")
    wide = ("--slice", "json", "--slice-margin", "0.05", "--slice-items", "800", "--slice-correlation", "0.1")
    for taken in (own, wide):
        code, said = await shell.run(*start, *taken)
        assert (code, said.partition(";")[0]) == (1, "There is no model 'm'")
    code, said = await shell.run("evals", "show", "mine")
    assert (code, "slipstream evals list" in said) == (1, True)
    missing = "6f0c2a4e-8f57-4a53-9d3b-5f1f6f0a7c21"
    assert await shell.run("evals", "show", missing) == (1, f"There is no run {missing}.")


async def test_items_are_shown_with_question_answers_and_scores(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    asked = ("one", "two", "--model", "chat", "--slices", "facts")
    made = msgspec.json.decode(await shell.must("evals", "compare", *asked, "--no-wait", "--json"))
    await connection.execute(ANSWERED, made["baseline_run"])
    await connection.execute(
        "INSERT INTO evals.items (run_id, slice, seed, cluster, answer, score, latency_ms)"
        " SELECT $1, 'facts', seed, 'c', 'b', (seed <= 7)::int, 1 FROM generate_series(1, 10) AS seed",
        made["candidate_run"],
    )
    text = await shell.must("evals", "show", made["id"], "--items", "--changed")
    question = Catalogue().find("facts").item(8).messages[-1]["content"]
    assert text.splitlines()[:4] == [
        "facts, seed 8", f"  question  {question}", "  1.00      a", "  0.00 new  b",
    ]  # fmt: skip
    assert "1 of 10 answered items" in text
    wrong = await shell.must("evals", "show", made["baseline_run"], "--items", "--wrong", "--json")
    assert [msgspec.json.decode(line)["seed"] for line in wrong.splitlines()] == [9, 10]


async def test_nights_are_shown_with_what_failed_and_what_is_missing(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    assert await shell.must("evals", "nights") == (
        "last night: none yet\nnext:       none\n"
        "missing:    no worker of the queue `evals` has started since this release was installed"
    )
    release = uuid.uuid4()
    await connection.execute(
        "INSERT INTO gateway.releases (id, model, candidate_pool, baseline_pool, control_pool, stages, shadow_share,"
        " shadow_least, slices, margins, state, stage, step, reason, ended_at, policy)"
        " VALUES ($1, 'm', 'new', 'old', '', '{0.5,1}', 0, 0, '{}', '{}', 'promoted', 1, 2, 'r', now(), '{}')",
        release,
    )
    await put_nights(connection, release)
    now = datetime.now(UTC)
    await nights.report(
        connection,
        schedule="0 2 * * *",
        previous_at=now,
        next_at=datetime(2026, 11, 29, 2, tzinfo=UTC),
        items=40,
        slices={"m": ["facts", "json"]},
        automatic_rollback=False,
    )
    code, shown = await shell.run("evals", "nights", "--every-slice")
    assert code == 1, "the newest night failed"
    lines = shown.splitlines()
    assert lines[0] == f"last night: m: {now:%Y-%m-%d}: fail, 1 of 2 slices worse: json"
    assert lines[1:3] == ["next:       2026-11-29 02:00 UTC: m (2 slices), 80 items", "missing:    nothing"]
    assert len([line for line in lines if re.match(r"\d{4}-\d\d-\d\d  m ", line)]) == 9
    assert any(
        re.match(r"json +fail +0.520 +-0.450 +40 +-45.0 points over 40 items of tonight", each) for each in lines
    )
    assert "changed since the previous version: pool: old -> new" in lines
    assert f"releases rollback {release} --reason" in lines[-1]
    found = msgspec.json.decode((await shell.run("evals", "nights", "--json", "--limit", "2"))[1])
    assert [each["decision"] for each in found["nights"]] == ["fail", "pass"]
    assert found["nights"][0]["rollback_release_id"] == str(release)
