"""`slipstream tools audit-stream`: finds proxies between this machine and a gateway that delay or change streams."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click
import msgspec

from contracts.errors import ConfigError

LONGEST_IDLE_S = 3_600.0


@click.command("audit-stream")
@click.argument("url")
@click.option("--key", metavar="KEY", help="An API key. Other users of this machine can see it; prefer --api-key-file.")
@click.option(
    "--api-key-file",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with the API key. Default: SLIPSTREAM_API_KEY.",
)
@click.option(
    "--idle-s",
    type=click.FloatRange(0, LONGEST_IDLE_S),
    default=0.0,
    metavar="SECONDS",
    help="Also test whether a connection survives this many seconds of silence. A stream is never silent for more "
    "than 15 s.",
)
@click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="CA certificates (PEM) of a private certificate authority.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the times of every event.")
def audit_stream(
    url: str, key: str | None, key_file: Path | None, idle_s: float, ca_file: str | None, as_json: bool
) -> None:
    """Find proxies that delay or change streams from here to a URL.

    The command measures name lookup, TLS and reuse of connections. It finds proxies that buffer, compress or join a
    stream's events, and lost headers, by a stream of numbered events at a known pace. It counts as six requests against
    the key's limits, uses no tokens and takes about four seconds. Exit code 0: nothing found; 1: something found;
    2: not measured or not judged.

    \b
    Example:
      SLIPSTREAM_API_KEY=sk-slip-... slipstream tools audit-stream https://models.example.com
    """
    from slipstream.stream_audit.measure import Plan, measure
    from slipstream.stream_audit.not_measured import NotMeasured
    from slipstream.stream_audit.report import report_of, text_of
    from tools.lsp.key import take_key

    secret = take_key({} if key is None else {"api_key": key}, key_file, os.environ)
    if not secret:
        raise ConfigError("no API key: set SLIPSTREAM_API_KEY, or give --api-key-file FILE")
    try:
        measured = asyncio.run(measure(url, secret, Plan(idle_s=idle_s), ca_file))
    except NotMeasured as error:
        click.echo(f"slipstream: {error}", err=True)
        sys.exit(2)
    report = report_of(measured)
    click.echo(msgspec.json.encode(report).decode() if as_json else text_of(report))
    sys.exit(report.exit_status)
