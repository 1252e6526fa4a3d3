"""The command line: `slipstream …` or `python -m slipstream …`. A ConfigError is one line on stderr and exit code 2."""

from __future__ import annotations

import logging
import sys

import click

from contracts.errors import ConfigError, SlipstreamError
from slipstream.command_line import CommandLine
from slipstream.commands.adapters import adapters
from slipstream.commands.admin_keys import admin_keys
from slipstream.commands.audit import audit
from slipstream.commands.audit_stream import audit_stream
from slipstream.commands.autocomplete import autocomplete
from slipstream.commands.changes import changes
from slipstream.commands.config import config
from slipstream.commands.console import console
from slipstream.commands.diagnose import diagnose
from slipstream.commands.engines import engines
from slipstream.commands.evals import evals
from slipstream.commands.fleet import fleet
from slipstream.commands.keys import keys
from slipstream.commands.limits import limits
from slipstream.commands.logs import logs
from slipstream.commands.lsp import lsp
from slipstream.commands.members import members
from slipstream.commands.migrate import migrate
from slipstream.commands.models import models
from slipstream.commands.organizations import organizations
from slipstream.commands.plan import plan
from slipstream.commands.pools import pools, replicas
from slipstream.commands.prefix import prefix
from slipstream.commands.prices import prices
from slipstream.commands.processes import engine, gateway, worker
from slipstream.commands.projects import projects
from slipstream.commands.quantization import quantization
from slipstream.commands.releases import releases
from slipstream.commands.requests import requests
from slipstream.commands.reviews import reviews
from slipstream.commands.router import router
from slipstream.commands.running import down, status
from slipstream.commands.shadow import shadow
from slipstream.commands.simulate import simulate
from slipstream.commands.slo import slo
from slipstream.commands.top import top
from slipstream.commands.up import up
from slipstream.commands.usage import usage
from slipstream.commands.webhooks import webhooks
from slipstream.commands.workload import workload
from telemetry.log import in_json


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="slipstream")
def cli() -> None:
    """Serve language models to many people: one URL, keys, limits, a ledger."""


for command in (
    up,
    status,
    top,
    fleet,
    down,
    logs,
    keys,
    requests,
    usage,
    config,
    migrate,
    gateway,
    router,
    engine,
    worker,
):
    cli.add_command(command)
for command in (
    autocomplete,
    organizations,
    projects,
    members,
    admin_keys,
    console,
    limits,
    adapters,
    prices,
    models,
    pools,
    replicas,
    webhooks,
    audit,
    audit_stream,
    diagnose,
    changes,
    shadow,
    reviews,
    engines,
    evals,
    releases,
    quantization,
    slo,
    prefix,
    workload,
    simulate,
    plan,
    lsp,
):
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        cli(prog_name="slipstream")
    except ConfigError as error:
        _complain(error.message)
        sys.exit(2)
    except SlipstreamError as error:
        _complain(error.message)
        sys.exit(1)


def _complain(message: str) -> None:
    if in_json():
        logging.getLogger("slipstream").error(message)
    else:
        print(f"slipstream: {' '.join(message.split())}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
