"""What `slipstream diagnose slo` tells, on a real database."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import UUID

import asyncpg
import msgspec
import pytest

from contracts.dated_request_id import mint
from contracts.desired_state import Pool, Replica
from contracts.objectives import OBJECTIVES
from control.slo.adoption import adopt
from gateway.desired import document
from tests.control.slo.trace_rows import Trace, write
from tests.databases import as_owner
from tests.slipstream.shell import Shell


@pytest.fixture
async def shell(fresh_postgres_url: str, data_folder: Path) -> Shell:
    """With organizations `acme` and `other`, and no traffic."""
    shell = Shell(fresh_postgres_url, data_folder)
    for name in ("acme", "other"):
        await shell.must("customers", "organizations", "create", name)
    return shell


def chat(organization_id: UUID, ttft_ms: float, *, ago_s: float = 60, status: int = 200) -> Trace:
    return Trace(
        request_id=mint(time.time() - ago_s),
        organization_id=organization_id,
        project_id=UUID(int=1),
        tier="chat",
        model="m",
        pool="chat",
        side="baseline",
        prompt_tokens=50,
        cached_tokens=0,
        completion_tokens=1_000,
        status=status,
        error_code=None if status == 200 else "overloaded",
        total_ms=ttft_ms + 1,
        ttft_ms=ttft_ms,
        tpot_ms=39.0,
    )


async def test_a_deployment_that_has_just_started_is_told_what_to_do(shell: Shell, fresh_postgres_url: str) -> None:
    assert "no worker has put objectives in force yet; `slipstream status" in await shell.must("diagnose", "slo")
    connection = await asyncpg.connect(fresh_postgres_url)
    await adopt(connection, OBJECTIVES)
    await connection.close()
    told = await shell.must("diagnose", "slo")
    assert "no request counted in this time; --since 7d looks further back" in told
    [short] = [line.split() for line in told.splitlines() if line.split()[:2] == ["chat", "short"]]
    assert short[2:] == ["700/40/-", "99%", "0", *"-----"]


async def test_shares_burn_rates_and_costs(shell: Shell, fresh_postgres_url: str) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    await adopt(connection, OBJECTIVES)
    owners = {
        name: await connection.fetchval("SELECT id FROM gateway.organizations WHERE name = $1", name)
        for name in ("acme", "other")
    }
    priced = Pool("chat", "openai", (Replica("r1", "http://one:1"),), price_per_replica_hour=3.0)
    await connection.execute(
        "INSERT INTO gateway.desired_states VALUES (1, $1, now() - interval '2 hours')",
        document.encode((), (priced,)),
    )
    acme = [chat(owners["acme"], 500) for _ in range(990)] + [chat(owners["acme"], 900) for _ in range(10)]
    await write(connection, [*acme, chat(owners["acme"], 500, ago_s=7_300), chat(owners["other"], 500, status=503)])
    code, told = await shell.run("diagnose", "slo", "--organization", "acme", "--since", "1h")
    assert code == 0, told
    [line] = [line.split() for line in told.splitlines() if line.split()[:2] == ["chat", "short"]]
    assert line[2:] == ["700/40/-", "99%", "1,000", "99.00%", "1.0", "1.0", "1.0", "0%"]
    assert "chat short: kept ttft 99.00%, tpot 100.00%, gap 100.00%; failed 0" in told
    assert told.startswith("No error budget burns too fast (objectives version 1")
    assert "spends it exactly" not in told
    assert "spends it exactly" in (await shell.run("diagnose", "slo", "--explain"))[1]
    assert "replica-hours" not in told, "a tenant has no pools"
    code, told = await shell.run("diagnose", "slo", "--since", "1h", "--json")
    report = msgspec.json.decode(told)
    assert code == 1, "11 of 1,001 are bad: more than the slowest pair of windows allows"
    [of_chat] = report["totals"]
    assert (of_chat["counted"], of_chat["good"], of_chat["failed"], of_chat["shed"]) == (1_001, 990, 1, 1)
    [pool] = report["pools"]["data"]
    assert pool["replica_hours"] == pytest.approx(1, abs=0.02)
    assert pool["good_tokens"] == 990_000
    assert pool["per_million_good_tokens_micro"] == pytest.approx(3_000_000 / 0.99, rel=0.02)
    lines = [each.split() for each in (await shell.run("diagnose", "slo", "--since", "1h"))[1].splitlines()]
    at = next(number for number, line in enumerate(lines) if line[-3:] == ["USD", "a", "million"])
    line = lines[at + 1]
    assert line == ["chat", line[1], "990,000", line[1], line[4], "990,000", line[6]]
    await write(connection, [chat(owners["other"], 5_000, ago_s=1) for _ in range(400)])
    code, told = await shell.run("diagnose", "slo")
    assert code == 1, "an alert"
    assert told.startswith("1 of 6 error budgets burn too fast (objectives version 1")
    assert told.splitlines()[1].startswith("`slipstream diagnose")
    assert "chat short: the budget burns at more than 14.4 times the allowed rate, over 1h and still over 5m" in told
    assert [line for line in told.splitlines() if len(line) > 100] == []
    await connection.close()


async def test_a_diagnosis_names_the_requests_of_the_alert_that_slo_shows(
    shell: Shell, fresh_postgres_url: str
) -> None:
    """The alert may rest on hours in which the diagnosed window has no part."""
    connection = await asyncpg.connect(fresh_postgres_url)
    await adopt(connection, OBJECTIVES)
    other = await connection.fetchval("SELECT id FROM gateway.organizations WHERE name = 'other'")
    code, told = await shell.run("diagnose", "--since", "1m")
    assert (code, "ALERT" in told) == (3, False)
    late = [chat(other, 5_000, ago_s=90 + number) for number in range(200)]
    shed = [chat(other, 500, ago_s=600, status=503) for _ in range(40)]
    await write(connection, [*late, *shed, *(chat(other, 500, ago_s=120) for _ in range(60))])
    checks = msgspec.json.decode((await shell.run("doctor", "--json"))[1])["checks"]  # before anything was added up
    found = {each["name"]: (each["outcome"], each["told"]) for each in checks}
    assert found["objectives"] == ("failed", "error budgets burn: chat, short")
    assert found["diagnosis"][0] == "warning"
    assert (await shell.run("diagnose", "slo"))[0] == 1
    code, told = await shell.run("diagnose", "--since", "60s")
    assert code == 4
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert lines[0].startswith("ALERT 240 of 300 requests of chat, short prompts (80.00%) broke the objective in 1h")
    named = f"m on chat, other ({other})"
    assert f"200 the first token came late, {named}" in told.replace("\n         ", " ").replace("  ", " ")
    assert f"40 overloaded, {named}" in told.replace("\n         ", " ").replace("  ", " ")
    assert max(map(len, told.splitlines())) <= 100
    code, told = await shell.run("diagnose", "--since", "60s", "--json")
    report = msgspec.json.decode(told)
    assert (report["outcome"], report["burning"][0]["long"]) == ("burning", "1h")
    code, told = await shell.run("diagnose", "--since", "60s", "--tenant", "acme")
    assert (code, "ALERT" in told) == (3, False)
    code, told = await shell.run("diagnose", "--since", "60s", "--tier", "autocomplete")
    assert (code, "ALERT" in told) == (3, False)
    await connection.close()


async def test_an_unknown_organization_is_refused_by_name(shell: Shell) -> None:
    code, told = await shell.run("diagnose", "slo", "--organization", "acm")
    assert code == 1
    assert "no organization has the id or name 'acm'" in told


async def test_a_database_that_refuses_to_write_is_named_by_whatever_adds_up(
    shell: Shell, fresh_postgres_url: str, data_folder: Path
) -> None:
    """Fault: with a full disk, or on a standby, `doctor` ended in a traceback and showed none of its checks."""
    owner = await asyncpg.connect(as_owner(fresh_postgres_url))
    await adopt(owner, OBJECTIVES)
    await owner.execute(
        "INSERT INTO gateway.prefix_shares SELECT id, date_trunc('hour', now()), 'm', 'e', 't', 'first', '', 1, 1, 0, 0"
        " FROM gateway.organizations WHERE name = 'acme'"
    )
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await owner.close()
    of_acme = [("usage", *name, "--organization", "acme") for name in (("autocomplete", "stats"), ("prefix",))]
    for command in (("diagnose", "slo"), ("diagnose",), ("usage", "verify"), *of_acme):
        code, told = await shell.run(*command)
        assert (code, "the totals could not be added up" in told, "read-only" in told) == (1, True, True), told
    checks = {each["name"]: each for each in msgspec.json.decode((await shell.run("doctor", "--json"))[1])["checks"]}
    assert (checks["database"]["outcome"], checks["diagnosis"]["outcome"]) == ("ok", "failed")
    assert "read-only" in checks["diagnosis"]["told"]
    code, told = await shell.run("customers", "organizations", "create", "new")
    assert (code, "read-only" in told) == (1, True), told
    nowhere = Shell(fresh_postgres_url.replace("?host=", "?host=/none"), data_folder)
    code, told = await nowhere.run("usage", "verify")
    assert (code, "cannot be reached" in told) == (1, True), told
