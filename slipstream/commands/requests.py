"""`slipstream requests`: lists requests, and shows one request or session in detail."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from contracts.phases import Phase
from contracts.printable import printable
from contracts.request_id import request_id_of
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.commands.projects import none_in, organization_option
from slipstream.moment import MOMENT, moment
from slipstream.money import told
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.requests.requests import RequestSummary
    from control.requests.session import SessionReport

TRACE = """
SELECT request_id, client_request_id, status, error_code, reason, rule::text AS rule, total_ms,
       phases_ms::text AS phases_ms, served_from, pool, replica_id, canary, side, release, stream, attempts,
       prompt_tokens, cached_tokens, completion_tokens, ttft_ms, tpot_ms, itl_max_ms, gaps_over_100ms, client_stall_ms,
       engine_queue_ms, engine_prefill_ms, engine_grammar_ms, retractions, trace_id, over_share, service_class,
       session, session_agent, session_parent
  FROM gateway.request_traces WHERE request_id = $1
"""
ATTEMPTS = """
SELECT attempt, model, adapter, tier, endpoint, stream, replica_id, prompt_tokens, cached_tokens, completion_tokens,
       outcome, finish, billed, status, error_code, opened_at, closed_at, gateway_id, phases_ms::text AS phases_ms
  FROM gateway.usage_events WHERE request_id = $1 ORDER BY attempt
"""


@click.group()
def requests() -> None:
    """List requests, or show one.

    \b
    Examples:
      slipstream requests list --organization acme --status 429
      slipstream requests show chatcmpl-019ab3…
      slipstream requests session 01a221ea-25a8-77c3-b966-f07322de4aac --organization acme
    """


@requests.command(name="list")
@deployment_options
@organization_option
@click.option("--project", help="Only requests of this project (id or name).")
@click.option("--key", help="Only requests of this key: its id, its sk-slip-… from `keys list`, or its name.")
@click.option("--status", type=click.IntRange(100, 599), help="Only this HTTP status, such as 429.")
@click.option("--error-code", help="Only this error code, such as insufficient_quota.")
@click.option("--model", help="Only requests to this model.")
@click.option("--session", help="Only requests of this session, as its client names it.")
@click.option("--since", "start", type=moment, metavar="MOMENT", help=MOMENT)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_command(
    deployment: Deployment, organization: str, project: str | None, key: str | None, as_json: bool, **options: object
) -> None:
    """List an organization's requests, including refused ones, without their content, newest first."""
    from control.requests.requests import RequestQuery, list_requests
    from slipstream.administration import administer, converted
    from slipstream.tenants import key_named, organization_named, project_named

    async def work(call: AdminCall) -> list[RequestSummary]:
        connection = call.connection
        project_id = None if project is None else await project_named(connection, organization, project)
        key_id = None if key is None else await key_named(connection, key)
        query = converted({**options, "project_id": project_id, "key_id": key_id}, RequestQuery)
        page = await list_requests(call, await organization_named(connection, organization), query)
        found: list[RequestSummary] = page.data
        return found

    found = administer(deployment, work)
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return
    currency = running_settings(*deployment).gateway.admin.currency
    rows = [
        (
            f"{each.recorded_at:%m-%d %H:%M:%S}",
            f"{each.status} {each.error_code or ''}".rstrip(),
            each.model or "-",
            _number(each.prompt_tokens),
            _number(each.completion_tokens),
            told(each.amount_micro, currency),
            "-" if each.ttft_ms is None else f"{each.ttft_ms:,.0f} ms",
            f"{each.total_ms:,.0f} ms",
            each.request_id,
        )
        for each in found
    ]
    head = ("at (UTC)", "status", "model", "in", "out", "cost", "ttft", "took", "request")
    print("\n".join(table(head, rows)) if rows else none_in(organization))


@requests.command()
@deployment_options
@organization_option
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    help="Maximum number of turns, newest first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("session_id")
def session(deployment: Deployment, organization: str, limit: int, as_json: bool, session_id: str) -> None:
    """Show the turns, gaps, lost prompt tokens with their causes, and cost of the session SESSION_ID (the client's name
    for it).

    Coding agents send the session's name in a header. `prompt_cache_key` and `user` in a body also name a session.
    """
    from control.requests.session import SessionQuery, get_session
    from slipstream.administration import administer
    from slipstream.tenants import organization_named

    async def work(call: AdminCall) -> SessionReport:
        organization_id = await organization_named(call.connection, organization)
        return await get_session(call, organization_id, session_id, SessionQuery(limit=limit))

    found = administer(deployment, work)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        _print_session(found, running_settings(*deployment).gateway.admin.currency)


def _print_session(found: SessionReport, currency: str) -> None:
    turns = "1 turn" if found.turns == 1 else f"{found.turns:,} turns"
    agents = "" if found.agents == 1 else f" of {found.agents:,} agents"
    share = f" ({found.cached_tokens / found.prompt_tokens:.0%} cached)" if found.prompt_tokens else ""
    print(f"session {printable(found.session)}: {turns}{agents}{', earlier ones left out' if found.has_more else ''}")
    print(
        f"  {found.prompt_tokens:,} prompt tokens{share}, {found.lost_tokens:,} lost; "
        f"{found.completion_tokens:,} generated; {told(found.amount_micro, currency)}"
    )
    rows = [
        (
            f"{each.arrived_at:%m-%d %H:%M:%S}",
            "-" if each.gap_ms is None else f"{each.gap_ms / 1e3:,.1f} s",
            printable(each.agent or "-"),
            f"{each.status} {each.error_code or ''}".rstrip(),
            *(_number(number) for number in (each.prompt_tokens, each.cached_tokens, each.lost_tokens)),
            each.cause or "-",
            _number(each.completion_tokens),
            told(each.amount_micro, currency),
            each.request_id,
        )
        for each in found.data
    ]
    head = ("at (UTC)", "gap", "agent", "status", "in", "cached", "lost", "cause", "out", "cost", "request")
    print("\n".join(table(head, rows)))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


@requests.command()
@deployment_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("request_id")
def show(deployment: Deployment, as_json: bool, request_id: str) -> None:
    """Show how REQUEST_ID spent its time, how its tokens arrived, and its usage. Exit code 1: there is no such request.

    Every response has the id in the header `x-request-id`; the response's own `id` (chatcmpl-…) also works. Attempts
    are counted from 0, as in the ledger. A further attempt goes to another engine after the previous one failed.
    """
    from slipstream.database import connected

    request_id = request_id_of(request_id)
    settings = running_settings(*deployment)

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
        print(f"no request {request_id}; a request appears about a second after its response", file=sys.stderr)
        sys.exit(1)


def _plain(row: Any) -> dict[str, Any]:
    phases_ms = msgspec.json.decode(row["phases_ms"])  # jsonb loses their order
    plain = {**row, "phases_ms": {phase.value: phases_ms[phase] for phase in Phase if phase in phases_ms}}
    if plain.get("rule") is not None:
        plain["rule"] = msgspec.json.decode(plain["rule"])
    return plain


def _print(request_id: str, trace: dict[str, Any] | None, attempts: list[dict[str, Any]]) -> None:
    print(request_id)
    if trace is not None:
        print(f"  status {trace['status']}, {trace['error_code'] or 'no error'}, {trace['total_ms']:,.1f} ms in all")
        if trace["reason"] is not None:
            print(f"  {printable(trace['reason'])}")
        if trace["client_request_id"] is not None:
            print(f"  the client called it {trace['client_request_id']!r}")
        if trace["served_from"] is not None:
            print(f"  answered from the generation of {trace['served_from']}")
        if trace["service_class"] is not None:
            print(f"  class {trace['service_class']}")
        if trace["session"] is not None:
            agent = "" if trace["session_agent"] is None else f", agent {trace['session_agent']}"
            parent = "" if trace["session_parent"] is None else f", begun by {trace['session_parent']}"
            print(f"  session {printable(trace['session'] + agent + parent)}")
        if trace["trace_id"] is not None:
            print(f"  trace {trace['trace_id']}")
        _print_phases(trace["phases_ms"])
        _print_latency(trace)
    for row in attempts:
        billed = "not billed" if not row["billed"] else "billed" if _used(row) else "nothing to bill"
        replica = row["replica_id"] or "no engine"
        opened = row["opened_at"].isoformat(sep=" ", timespec="milliseconds")
        model = row["model"] if row["adapter"] is None else f"{row['model']}:{row['adapter']}"
        print(f"  attempt {row['attempt']}: {row['endpoint']} {model} ({row['tier']}) on {replica}, {opened}")
        print(
            f"    {row['prompt_tokens']:,} prompt tokens ({row['cached_tokens']:,} cached), "
            f"{row['completion_tokens']:,} generated; {row['outcome']}, {row['error_code'] or row['finish']}, {billed}"
        )
        if trace is None:
            _print_phases(row["phases_ms"])


def _print_latency(trace: dict[str, Any]) -> None:
    """Print when the request's tokens came, as far as measured."""
    if trace["ttft_ms"] is None:
        return
    parts = [f"first text after {trace['ttft_ms']:,.1f} ms"]
    if trace["tpot_ms"] is not None:
        parts.append(f"{trace['tpot_ms']:,.1f} ms per further token")
    if trace["itl_max_ms"] is not None:
        parts.append(f"longest gap {trace['itl_max_ms']:,.1f} ms ({trace['gaps_over_100ms']} over 100 ms)")
    if trace["client_stall_ms"]:
        parts.append(f"the client read nothing for {trace['client_stall_ms']:,.1f} ms")
    print(f"  {'; '.join(parts)}")
    if trace["engine_queue_ms"] is not None:
        compiled_ms = trace["engine_grammar_ms"]
        grammar = f"{compiled_ms:,.1f} ms until its grammar was compiled, " if compiled_ms else ""
        print(
            f"  its engine reports: {grammar}{trace['engine_queue_ms']:,.1f} ms in its queue, "
            f"{trace['engine_prefill_ms']:,.1f} ms of prefill, retracted {trace['retractions']} times"
        )


def _used(row: dict[str, Any]) -> bool:
    return bool(row["prompt_tokens"] or row["completion_tokens"])


def _print_phases(phases_ms: dict[str, float]) -> None:
    for name, value_ms in phases_ms.items():
        print(f"    {name:<20}{value_ms:>12,.2f} ms")
