"""`slipstream customers`: the organizations of a deployment and their settings."""

from __future__ import annotations

import click

from slipstream.command_table import Group


@click.group(cls=Group)
def customers() -> None:
    """Organizations, projects, members, limits, prices, webhooks."""
