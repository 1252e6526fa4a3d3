"""What `slipstream usage autocomplete stats` tells, on a real database."""

from __future__ import annotations

import time
from pathlib import Path

import asyncpg
import msgspec
import pytest

from contracts.dated_request_id import mint
from control.completions.autocomplete import AutocompleteTotals
from tests.slipstream.shell import Shell

ACME = ("--organization", "acme")


@pytest.fixture
async def shell(fresh_postgres_url: str, data_folder: Path) -> Shell:
    """With an organization `acme` that made completions in 130 languages' names, and took half of the first's."""
    shell = Shell(fresh_postgres_url, data_folder)
    await shell.must("keys", "create", "--create-missing", *ACME, "--project", "web", "--name", "ci")
    connection = await asyncpg.connect(fresh_postgres_url)
    ids = [mint(time.time() - 60) for _ in range(130)]
    await connection.execute(
        """
        INSERT INTO gateway.request_traces (request_id, organization_id, project_id, endpoint, model, tier, status,
               total_ms, phases_ms, client, language, characters)
        SELECT made.name, organization_id, p.id, 'fim', 'slipstream-code', 'autocomplete', 200, 20, '{}', 'curl',
               CASE WHEN number <= 10 THEN 'python' ELSE 'l' || number END, 8
          FROM gateway.projects p, unnest($1::text[]) WITH ORDINALITY AS made (name, number)
        """,
        ids,
    )
    await connection.execute(
        """
        INSERT INTO gateway.completion_events (request_id, project_id, choice_index, view_id, type, organization_id)
        SELECT made.name, p.id, 0, '', type, organization_id
          FROM gateway.projects p, unnest($1::text[]) WITH ORDINALITY AS made (name, number),
               unnest('{view,select}'::text[]) AS type
         WHERE number <= 10 AND (type = 'view' OR number <= 5)
        """,
        ids,
    )
    await connection.close()
    return shell


async def test_stats_of_an_organization(shell: Shell) -> None:
    head, line = (await shell.must("usage", "autocomplete", "stats", *ACME)).splitlines()
    shown = "completions empty abandoned superseded shown accepted dismissed rate offered kept p50 p95"
    assert head.split() == shown.split()
    assert line.split() == "130 0 0 0 10 5 0 50.0% 1,040 40 20 ms 20 ms".split()
    by = ("--by", "client", "--by", "language")
    lines = (await shell.must("usage", "autocomplete", "stats", *ACME, *by)).splitlines()
    assert lines[0].split()[:2] == ["language", "client"]
    assert len(lines) == 1 + 121, "every page"
    [python] = [line.split() for line in lines if line.startswith("python")]
    assert python == "python curl 10 0 0 0 10 5 0 50.0% 80 40 20 ms 20 ms".split()
    told = await shell.must("usage", "autocomplete", "stats", *ACME, "--by", "language", "--json")
    decoded = [msgspec.json.decode(line, type=AutocompleteTotals) for line in told.splitlines()]
    assert sum(each.completions for each in decoded) == 130
    assert {each.acceptance_rate for each in decoded} == {0.5, None}
