"""`slipstream status` and `slipstream down`: talk to the supervisor that runs on a data folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from slipstream.commands.options import (
    Deployment,
    control_address_option,
    deployment_options,
    load_settings,
    running_settings,
)
from slipstream.table import table

DOWN_TIMEOUT_S = 120.0


@click.command()
@deployment_options
@control_address_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def status(deployment: Deployment, address: str | None, as_json: bool) -> None:
    """Show the processes that `up` keeps running, and every engine as the router sees it, those elsewhere too.

    Exit code 0: every process is ready and every engine usable; 1: something is not, or nothing runs. Where `up` is not
    used, the engines alone are shown, by the router of the settings or of --address.
    """
    from infra.local.child import State
    from infra.local.control import ask
    from slipstream.replicas import replicas_of

    folder = load_settings(deployment.config_file, local__data=deployment.data).data
    answer = asyncio.run(ask(folder.control_socket, "status"))
    replicas = replicas_of(running_settings(*deployment), address)
    ready = answer is None or all(process.state is State.READY for process in answer.processes)
    if as_json:
        told = {
            "url": answer.url if answer is not None else "",
            "processes": answer.processes if answer is not None else (),
            "replicas": replicas or (),
        }
        print(msgspec.json.encode(told).decode())
    else:
        if answer is not None:
            print(answer.url)
            print(f"  {'process':<24}{'state':<20}{'pid':>8}{'restarts':>10}{'up':>10}  url")
            for process in answer.processes:
                pid = "-" if process.pid is None else str(process.pid)
                uptime = f"{process.uptime_s:,.0f} s"
                row = f"{process.name:<24}{process.state:<20}{pid:>8}{process.restarts:>10}{uptime:>10}  {process.url}"
                print(f"  {row.rstrip()}")
        elif replicas is None:
            print(f"nothing runs on {folder.path}", file=sys.stderr)
        rows = [(replica.id, replica.pool, replica.state, replica.url) for replica in replicas or ()]
        for line in table(("engine", "pool", "state", "url"), rows) if replicas is not None else ():
            print(f"  {line}")
        if replicas is None and answer is not None:
            print("  engines: unknown, the router does not answer")
    if not ready or not replicas or not all(replica.usable for replica in replicas):
        sys.exit(1)


@click.command()
@deployment_options
def down(deployment: Deployment) -> None:
    """Stop what runs on the data folder, letting requests finish.

    Exit code 1 when it does not stop in time, and when there is no deployment's data in this folder: it may be another.
    """
    folder = load_settings(deployment.config_file, local__data=deployment.data).data
    if not folder.lock_file.exists():
        print(f"{folder.path} holds no deployment of `slipstream up`; name its folder with --data", file=sys.stderr)
        sys.exit(1)
    if not asyncio.run(_stop(folder.control_socket, folder.lock_file)):
        print(f"still stopping after {DOWN_TIMEOUT_S:g} s; see {folder.logs}", file=sys.stderr)
        sys.exit(1)


async def _stop(control_socket: Path, lock_file: Path) -> bool:
    """Ask, then wait until the supervisor has let go of the folder."""
    from infra.local.control import ask
    from infra.local.lock import held

    if await ask(control_socket, "stop") is None and not held(lock_file):
        print(f"nothing runs on {lock_file.parent}")
        return True
    try:
        async with asyncio.timeout(DOWN_TIMEOUT_S):
            while held(lock_file):  # noqa: ASYNC110  another process's lock: there is nothing to wait on but itself
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    print("stopped")
    return True
