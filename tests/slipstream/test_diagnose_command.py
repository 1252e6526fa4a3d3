"""`slipstream diagnose` and `slipstream diagnose changes` on a real database: what they print, and how they end."""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import click
import msgspec

from control.diagnosis.findings.finding import Cause
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.tree import Outcome
from slipstream.__main__ import cli
from slipstream.exit_codes import DIAGNOSIS_EXIT
from tests.certificates import write_certificate
from tests.control.diagnosis.findings.traffic import CHANGES, WINDOW, rows
from tests.control.diagnosis.stored_traffic import forget, store
from tests.deployment import ROOT
from tests.slipstream.shell import Shell

SINCE = ("diagnose", "--since", "60s")


async def traffic(connection: asyncpg.Connection[Any], cause: Cause | None) -> None:
    """A minute that is well, and the one until now."""
    source, now = random.Random(51), datetime.now(UTC)
    change = CHANGES[cause] if cause is not None else lambda _, row: row
    latest = [change(source, row) for row in rows(source, now - WINDOW)]
    await forget(connection)
    await store(connection, [*rows(source, now - 2 * WINDOW), *latest])


async def test_a_cause_is_told_with_what_to_change_and_what_would_not_help(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    await traffic(connection, Cause.SLOW_PREFILL)
    code, said = await shell.run(*SINCE)
    assert code == 4, said
    assert said.startswith("FOUND  phase prefill: slow_prefill")
    assert "fix 1  check_placement" in said
    assert "would not help: speculative_decoding" in said
    assert "chat, short" in said
    code, said = await shell.run(*SINCE, "--tenant", "acme", "--json")
    found = msgspec.json.decode(said)
    assert (code, found["primary"]["cause"]) == (4, "slow_prefill")
    assert 0 < found["requests"] < 200
    code, said = await shell.run(*SINCE, "--tier", "autocomplete")
    assert (code, "not enough evidence" in said) == (3, True)


async def test_where_all_is_well_nothing_is_found(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    await traffic(connection, None)
    code, said = await shell.run(*SINCE)
    assert (code, said.startswith("No cause found above its threshold.")) == (0, True), said


async def test_a_certificate_that_is_not_accepted_is_found_and_its_authority_can_be_named(
    shell: Shell, connection: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    """Behind an accepted one nobody answers: that too is said, and not that nothing was audited."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    (tmp_path / "api_key").write_text("sk-slip-x")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    await traffic(connection, None)

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asked = (*SINCE, "--organization", "acme", "--url", url, "--api-key-file", str(tmp_path / "api_key"), "--json")
        code, said = await shell.run(*asked)
        found = msgspec.json.decode(said)
        assert (code, found["primary"]["cause"]) == (4, "network")
        assert found["primary"]["evidence"][0].startswith("certificate_untrusted: Not accepted")
        code, said = await shell.run(*asked, "--ca-file", str(certificate))
        found = msgspec.json.decode(said)
        assert (code, found["primary"]) == (0, None)
        [why] = [each["why"] for each in found["unknown"] if each["cause"] == "network"]
        assert why.startswith("the path was not measured: "), why


async def test_what_cannot_be_asked_is_said(shell: Shell) -> None:
    for arguments, told in (
        ("--since soon", "'soon' is not a time"),
        ("--tenant nobody", "nobody"),
        ("--since 9d", "Invalid value for '--since': '9d' is too long: 7d is the maximum"),
        ("--since 999999d", "Invalid value for '--since': '999999d' is too long: 7d is the maximum"),
        ("--since 2020-01-01", "for '--since': '2020-01-01' is more than 7 days away; write 90s, 30m"),
        ("--since 0s", "for '--since': '0s' is not in the past; give a time from 1s to 7d ago"),
        (f"--since {datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}", "is not in the past; give a time from 1s"),
        ("--before 8d", "Invalid value for '--before': '8d' is too long: 7d is the maximum"),
        ("--url http://127.0.0.1:1", "no API key"),
        ("changes measure x", "is not the id of a change"),
    ):
        code, said = await shell.run("diagnose", *arguments.split())
        assert (code in (1, 2), told in said) == (True, True), said
    code, said = await shell.run("diagnose", "--since", "7d", "--before", "7d")
    assert (code, "not enough evidence" in said) == (3, True), "as much as may be judged at once is"


async def test_a_reason_that_many_causes_share_is_one_line(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    await forget(connection)
    _, said = await shell.run(*SINCE, "--json")
    reasons = Counter(each["why"] for each in msgspec.json.decode(said)["unknown"])
    _, said = await shell.run(*SINCE)
    assert said.count("not enough evidence: ") == len(reasons)
    for why, count in reasons.items():
        assert f"{why} ({count} cause{'s' if count > 1 else ''})" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 100


def test_a_finding_ends_with_a_code_that_no_error_has() -> None:
    assert set(DIAGNOSIS_EXIT) == set(Outcome)
    assert {DIAGNOSIS_EXIT[Outcome.FOUND], DIAGNOSIS_EXIT[Outcome.NOT_ENOUGH_EVIDENCE]}.isdisjoint((0, 1, 2))
    told = " ".join((cli.commands["diagnose"].help or "").split())
    assert f"{DIAGNOSIS_EXIT[Outcome.FOUND]}: a cause was" in told
    assert f"{DIAGNOSIS_EXIT[Outcome.NOT_ENOUGH_EVIDENCE]}: not enough evidence" in told


async def test_the_ledger_is_printed_with_what_was_measured(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    assert await shell.must("diagnose", "changes", "list") == "no changes recorded"
    await traffic(connection, Cause.SLOW_PREFILL)
    at = f"{datetime.now(UTC) - WINDOW:%Y-%m-%dT%H:%M:%S}"
    added = ("diagnose", "changes", "add")
    await shell.must(*added, "bigger model", "--expected-ms=100", "--statistic", "p50", "--at", at, "--window", "60s")
    head, row = (await shell.must("diagnose", "changes", "list")).splitlines()
    assert head.split()[:2] == ["made", "at"]
    assert "bigger model" in row
    assert "+100 ms" in row
    assert row.count(" ms of ") == 2
    assert "too few" not in row
    told = await shell.must(*added, "a hope", "--expected-ms=-5", "--statistic", "p99", "--at", "2020-01-01T00:00:00")
    assert "only 0 requests have been measured before the change; with fewer than 500 the effect may be chance" in told
    at = f"{datetime.now(UTC) - WINDOW:%Y-%m-%dT%H:%M:%S}"
    told = await shell.must(*added, "few", "--expected-ms=1", "--statistic=p99", "--at", at, "--window=60s")
    assert "only " in told
    [few] = [line for line in (await shell.must("diagnose", "changes", "list")).splitlines() if " few " in line]
    assert " ms (too few)" in few


def test_settings_and_commands_that_changes_name_are_there() -> None:
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text()
    told = " ".join(fix.told for fix in Fix)
    for name in re.findall(r"\b(?:gateway|router|engine)\.[a-z_.]*[a-z_]", told):
        assert f"`{name}" in settings, name
    for command in re.findall(r"`slipstream ([a-z -]+)`", told):
        found: click.Command | None = cli
        for word in command.split():
            if not isinstance(found, click.Group):  # the rest are its arguments
                break
            found = found.get_command(click.Context(found), word)
        assert found is not None, command
