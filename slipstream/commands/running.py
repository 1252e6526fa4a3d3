"""`slipstream status` and `slipstream down`: query and stop the supervisor of a data folder."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from slipstream.commands.options import (
    Deployment,
    control_address_option,
    deployment_options,
    load_settings,
    running_settings,
)

if TYPE_CHECKING:
    from infra.local.folders import DataFolder
    from slipstream.settings import Settings

DOWN_TIMEOUT_S = 120.0


@click.command()
@deployment_options
@control_address_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(deployment: Deployment, address: str | None, as_json: bool) -> None:
    """Report overall health, and show processes and engines.

    The processes are those of `up`, each with its metrics address. The engines are all that the router knows, including
    those on other machines. Exit code 0: every process is ready, every engine is usable and the newest version of the
    fleet is in force; 1: otherwise, or nothing is running. Without `up`, the command lists only the engines, from the
    router in the settings or at --address.
    """
    from infra.local.child import State
    from infra.local.control import ask
    from slipstream.metrics_targets import addresses
    from slipstream.processes import admin_url
    from slipstream.replicas import replicas_of
    from slipstream.status_report import text_of

    folder = load_settings(deployment.config_file, local__data=deployment.data).data
    answer = asyncio.run(ask(folder.control_socket, "status"))
    settings = running_settings(*deployment)
    replicas = replicas_of(settings, address)
    ready = answer is None or all(process.state is State.READY for process in answer.processes)
    url, processes = ("", ()) if answer is None else (answer.url, answer.processes)
    has_console = bool(url) and settings.gateway.console.enabled
    console = f"{admin_url(settings)}/console/" if has_console else None
    metrics = addresses(folder.prometheus_targets) if url else {}
    refusals = _refusals(settings)
    if as_json:
        report = {
            "url": url,
            "console": console,
            "processes": processes,
            "replicas": replicas or (),
            "metrics": metrics,
            "refusals": refusals,
            "preparing": "" if answer is None else answer.preparing,
        }
        print(msgspec.json.encode(report).decode())
    elif answer is not None and answer.preparing:
        print(f"`slipstream up` on {folder.path} has not started a process yet: {answer.preparing}")
        sys.exit(1)
    elif answer is None and replicas is None:
        print(without_supervisor(folder, deployment), file=sys.stderr)
    else:
        print(text_of(url, console, processes, replicas, metrics, refusals))
    if refusals or not ready or not replicas or not all(replica.usable for replica in replicas):
        sys.exit(1)


def _refusals(settings: Settings) -> list[str]:
    """The gateways' refusals. Empty if the database is unreachable: the table shows it as a process."""
    from contracts.errors import SlipstreamError
    from slipstream.gateway_refusals import gateway_refusals

    try:
        return asyncio.run(gateway_refusals(settings))
    except SlipstreamError:
        return []


@click.command()
@deployment_options
def down(deployment: Deployment) -> None:
    """Stop all processes of the data folder, letting requests finish.

    Exit code 1: the deployment does not stop in time, or the folder (--data) has no deployment.
    """
    folder = load_settings(deployment.config_file, local__data=deployment.data).data
    if not folder.lock_file.exists():
        print(_nothing_to_stop(folder, deployment), file=sys.stderr)
        sys.exit(1)
    if not asyncio.run(_stop(folder)):
        print(f"still stopping after {DOWN_TIMEOUT_S:g} s; see {folder.logs}", file=sys.stderr)
        sys.exit(1)


def without_supervisor(folder: DataFolder, deployment: Deployment) -> str:
    """The message about a data folder on which neither `up` nor a router answers."""
    if not folder.path.is_dir():
        return f"there is no folder {folder.path}; name the deployment's with --data"
    gateways = _gateways(folder)
    message = f"`slipstream up` does not run on {folder.path}, " + (
        f"but {gateways}" if gateways else "nor does a gateway"
    )
    if deployment.config_file is not None:
        return f"{message}; the router does not answer"
    message += "" if gateways else "; start it with `slipstream up`"
    return f"{message}; a router or worker that was started alone is found by its settings: name them with --config"


def _nothing_to_stop(folder: DataFolder, deployment: Deployment) -> str:
    if not folder.path.is_dir():
        return f"there is no folder {folder.path}; name the deployment's with --data"
    message = f"{folder.path} holds no deployment of `slipstream up`"
    if deployment.data is None:
        message += "; name its folder with --data"
    gateways = _gateways(folder)
    return f"{message}; processes that were started one by one end on SIGTERM{f': {gateways}' if gateways else ''}"


def _gateways(folder: DataFolder) -> str:
    from gateway.metering.journal.folder import writers

    return ", ".join(f"gateway {instance} (pid {pid})" for instance, pid in writers(folder.journal).items())


async def _stop(folder: DataFolder) -> bool:
    """Request the stop, then wait until the supervisor releases the folder's lock."""
    from infra.local.control import ask
    from infra.local.lock import held

    if await ask(folder.control_socket, "stop") is None and not held(folder.lock_file):
        gateways = _gateways(folder)
        print(
            f"nothing of `slipstream up` runs on {folder.path}" + (f"; on SIGTERM end {gateways}" if gateways else "")
        )
        return True
    try:
        async with asyncio.timeout(DOWN_TIMEOUT_S):
            while held(folder.lock_file):  # noqa: ASYNC110  another process's lock has no event to wait for
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    print("stopped")
    return True
