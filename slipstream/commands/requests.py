"""`slipstream requests`: what the platform knows about one request."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from contracts.phases import Phase
from slipstream.commands.options import config_option, data_option, running_settings

TRACE = """
SELECT request_id, client_request_id, status, error_code, reason, rule::text AS rule, total_ms,
       phases_ms::text AS phases_ms
  FROM gateway.request_traces WHERE request_id = $1
"""
ATTEMPTS = """
SELECT attempt, model, tier, endpoint, stream, replica_id, prompt_tokens, cached_tokens, completion_tokens, outcome,
       finish, billed, status, error_code, opened_at, closed_at, gateway_id, phases_ms::text AS phases_ms
  FROM gateway.usage_events WHERE request_id = $1 ORDER BY attempt
"""


@click.group()
def requests() -> None:
    """Look at single requests."""


@requests.command()
@data_option
@config_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.argument("request_id")
def show(config_file: Path | None, data: str | None, as_json: bool, request_id: str) -> None:
    """Show where the time of REQUEST_ID (`x-request-id`) went and what it used. Exit code 1 when it is not known."""
    from slipstream.database import connected

    settings = running_settings(config_file, data)

    async def run() -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        async with connected(settings) as connection:
            trace = await connection.fetchrow(TRACE, request_id)
            attempts = await connection.fetch(ATTEMPTS, request_id)
            return (None if trace is None else _plain(trace)), [_plain(row) for row in attempts]

    trace, attempts = asyncio.run(run())
    if as_json:
        print(msgspec.json.encode({"trace": trace, "attempts": attempts}).decode())
    elif trace is not None or attempts:
        _print(request_id, trace, attempts)
    if trace is None and not attempts:
        print(f"no request {request_id}; rows arrive about a second after the answer", file=sys.stderr)
        sys.exit(1)


def _plain(row: Any) -> dict[str, Any]:
    phases_ms = msgspec.json.decode(row["phases_ms"])  # jsonb forgets their order
    plain = {**row, "phases_ms": {phase.value: phases_ms[phase] for phase in Phase if phase in phases_ms}}
    if plain.get("rule") is not None:
        plain["rule"] = msgspec.json.decode(plain["rule"])
    return plain


def _print(request_id: str, trace: dict[str, Any] | None, attempts: list[dict[str, Any]]) -> None:
    print(request_id)
    if trace is not None:
        print(f"  status {trace['status']}, {trace['error_code'] or 'no error'}, {trace['total_ms']:,.1f} ms in all")
        if trace["reason"] is not None:
            print(f"  {trace['reason']}")
        if trace["client_request_id"] is not None:
            print(f"  the client called it {trace['client_request_id']!r}")
        _print_phases(trace["phases_ms"])
    for row in attempts:
        billed = "billed" if row["billed"] else "not billed"
        replica = row["replica_id"] or "no engine"
        opened = row["opened_at"].isoformat(sep=" ", timespec="milliseconds")
        print(f"  attempt {row['attempt']}: {row['endpoint']} {row['model']} ({row['tier']}) on {replica}, {opened}")
        print(
            f"    {row['prompt_tokens']:,} prompt tokens ({row['cached_tokens']:,} cached), "
            f"{row['completion_tokens']:,} generated; {row['outcome']}, {row['finish']}, {billed}"
        )
        if row["error_code"] is not None:
            print(f"    {row['error_code']}")
        if trace is None:
            _print_phases(row["phases_ms"])


def _print_phases(phases_ms: dict[str, float]) -> None:
    for name, value_ms in phases_ms.items():
        print(f"    {name:<20}{value_ms:>12,.2f} ms")
