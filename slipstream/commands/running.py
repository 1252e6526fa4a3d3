"""`slipstream status` and `slipstream down`: talk to the supervisor that runs on a data folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from slipstream.commands.options import config_option, data_option, load_settings, running_settings

DOWN_TIMEOUT_S = 120.0


@click.command()
@data_option
@config_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def status(config_file: Path | None, data: str | None, as_json: bool) -> None:
    """Show what runs. Exit code 1 when nothing does, or when a process is not ready."""
    from infra.local.child import State
    from infra.local.control import ask

    folder = load_settings(config_file, local__data=data).data
    answer = asyncio.run(ask(folder.control_socket, "status"))
    if as_json:
        print(msgspec.json.encode(answer).decode() if answer is not None else '{"url":"","processes":[]}')
    elif answer is None:
        print(f"nothing runs on {folder.path}", file=sys.stderr)
    else:
        print(answer.url)
        print(f"  {'process':<24}{'state':<20}{'pid':>8}{'restarts':>10}{'up':>10}  url")
        for process in answer.processes:
            pid = "-" if process.pid is None else str(process.pid)
            uptime = f"{process.uptime_s:,.0f} s"
            row = f"{process.name:<24}{process.state:<20}{pid:>8}{process.restarts:>10}{uptime:>10}  {process.url}"
            print(f"  {row.rstrip()}")
        print(_replicas(config_file, data), end="")
    if answer is None or any(process.state is not State.READY for process in answer.processes):
        sys.exit(1)


def _replicas(config_file: Path | None, data: str | None) -> str:
    """A line about engines that cannot be used, those elsewhere too; empty when there are none or no router answers."""
    from contracts.errors import SlipstreamError
    from router.control.client import ControlClient

    settings = running_settings(config_file, data)
    try:
        with ControlClient(settings.control_address, settings.reader_token) as control:
            replicas = [replica for pool in control.fleet().pools for replica in pool.replicas]
    except SlipstreamError:
        return ""
    unusable = sum(not replica.usable for replica in replicas)
    return f"{unusable} of {len(replicas)} replicas not usable: `slipstream fleet` says why\n" if unusable else ""


@click.command()
@data_option
@config_option
def down(config_file: Path | None, data: str | None) -> None:
    """Stop what runs on the data folder, letting requests finish. Exit code 1 when it does not stop in time."""
    folder = load_settings(config_file, local__data=data).data
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
