"""`slipstream top`: shows the deployment's current load and speed, refreshed until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import time

import click
import msgspec

from contracts.errors import SlipstreamError
from slipstream.commands.options import Deployment, control_address_option, deployment_options, running_settings


@click.command()
@deployment_options
@control_address_option
@click.option(
    "--window", "window_s", type=click.IntRange(1, 3_600), default=60, show_default=True, metavar="SECONDS",
    help="Cover the requests that ended within this time.",
)  # fmt: skip
@click.option("--every", "every_s", type=click.FloatRange(0.2, 60), default=2.0, show_default=True, metavar="SECONDS",
              help="Time between two refreshes.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print once and exit; the default if the output is not a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object once and exit.")
def top(deployment: Deployment, address: str | None, window_s: int, every_s: float, once: bool, as_json: bool) -> None:
    """Watch tiers and pools live, until Ctrl-C.

    It shows goodput, time to first token, time per token, queues, shed requests, cache hits and cost.

    \b
    Examples:
      slipstream top
      slipstream top --window 300 --json
    """
    from rich.console import Console
    from rich.live import Live

    from slipstream.top.gather import gather
    from slipstream.top.screen import picture, problem

    settings = running_settings(*deployment)
    if as_json:
        print(msgspec.json.encode(asyncio.run(gather(settings, window_s, address))).decode())
        return
    console = Console()
    if once or not console.is_terminal:
        wide = console if console.is_terminal else Console(width=200)
        wide.print(picture(asyncio.run(gather(settings, window_s, address))))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live, contextlib.suppress(KeyboardInterrupt):
        while True:
            try:
                shown = picture(asyncio.run(gather(settings, window_s, address)))
            except SlipstreamError as error:  # the next refresh finds a database that restarts
                shown = problem(error.message)
            live.update(shown, refresh=True)
            time.sleep(every_s)
