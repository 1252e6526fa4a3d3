"""`slipstream tools`: programs outside a deployment."""

from __future__ import annotations

import click

from slipstream.command_table import Group


@click.group(cls=Group)
def tools() -> None:
    """Size hardware, launch engines, test load, simulate, audit a network, complete code."""
