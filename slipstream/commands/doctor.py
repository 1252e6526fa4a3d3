"""`slipstream doctor`: every check of a deployment at once."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from slipstream.commands.options import (
    Deployment,
    control_address_option,
    deployment_options,
    load_settings,
    running_settings,
)
from slipstream.exit_codes import DOCTOR_EXIT
from slipstream.table import table


@click.command()
@deployment_options
@control_address_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(deployment: Deployment, address: str | None, as_json: bool) -> None:
    """Check the whole deployment: settings, stores, processes, engines, gateway, disk, objectives, diagnosis.

    The command changes nothing. Objectives and diagnosis are those of `slipstream diagnose` at this moment. Exit code
    0: all checks passed; 4: there are warnings but no failures; 1: a check failed.
    """
    from infra.local.lock import held
    from slipstream.commands.running import without_supervisor
    from slipstream.doctor import examined

    configured = load_settings(deployment.config_file, local__data=deployment.data)
    health = asyncio.run(examined(running_settings(*deployment), configured, address))
    if as_json:
        print(msgspec.json.encode(health).decode())
    else:
        rows = [(each.name, each.outcome.value, each.told) for each in health.checks]
        if DOCTOR_EXIT[health.worst] == 1 and not held(configured.data.lock_file):
            print(without_supervisor(configured.data, deployment))
        print("\n".join(table(("check", "", "found"), rows)))
        for each in health.checks:
            if each.step:
                print(f"{each.name}: {each.step}")
    sys.exit(DOCTOR_EXIT[health.worst])
