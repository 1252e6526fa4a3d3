"""`slipstream run`: a coding agent on this deployment, with a key that is revoked when it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import click

from contracts.errors import ConfigError, NoEngine
from contracts.generation import Tier
from slipstream.coding_clients import CLIENTS, CodingClient, Served, environment_of
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.hints import command
from slipstream.lent_key import Payer, lent_key
from slipstream.money import Money

REQUESTS_PER_MINUTE, MAX_CONCURRENCY = 600, 16
"""More than an agent with its children sends, less than a runaway loop."""
CHECK_TIMEOUT_S = 10.0
CHECK_EVERY_S = 0.2


@click.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@deployment_options
@click.option("--model", help="A chat model, or an alias. Default: the first chat model that the project may use.")
@click.option("--organization", default="demo", show_default=True, help="Organization that pays, id or name.")
@click.option("--project", default="default", show_default=True, help="Project of the organization, id or name.")
@click.option(
    "--hours", type=click.FloatRange(0, 720, min_open=True), default=12, show_default=True, help="Lifetime of the key."
)
@click.option(
    "--money-per-month", type=Money(), help="Monthly budget of the key, in units of the currency. Default: none."
)
@click.option("--url", help="URL of the gateway, without /v1. Default: from the settings.")
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    deployment: Deployment,
    model: str | None,
    organization: str,
    project: str,
    hours: float,
    money_per_month: int | None,
    url: str | None,
    client: str,
    arguments: tuple[str, ...],
) -> None:
    """Start a coding agent on this deployment: CLIENT with ARGUMENTS, and a key that is revoked when it ends.

    The client is configured by its environment and flags alone; its settings files are not changed. Exit code: the
    client's.

    \b
    Examples:
      slipstream run claude
      slipstream run --model large --organization acme --project web codex exec "fix the failing test"
    """
    chosen = CLIENTS[client]
    program = shutil.which(chosen.program)
    if program is None:
        raise ConfigError(f"{chosen.program} is not installed here; install it with `{chosen.install}`")
    settings = running_settings(*deployment)
    from control.tenants.limits import NewLimits
    from slipstream.processes import public_url

    base = (url or settings.gateway.console.public_url or public_url(settings)).rstrip("/").removesuffix("/v1")
    limits = NewLimits(
        requests_per_minute=REQUESTS_PER_MINUTE, max_concurrency=MAX_CONCURRENCY, money_micro_per_month=money_per_month
    )
    payer = Payer(organization, project)
    with lent_key(deployment, f"run {client}", payer, limits, model=model, tiers={Tier.CHAT}, hours=hours) as lent:
        require_served(chosen, base, lent.secret)
        served = Served(base, lent.secret, lent.model.name, lent.model.context_tokens)
        print(
            f"{client} with {lent.model.name} at {base}; key {lent.key.display} is revoked when it ends, "
            f"and expires in {hours:g} h",
            file=sys.stderr,
        )
        code = _ended([program, *chosen.arguments(served), *arguments], environment_of(chosen, served, os.environ))
    sys.exit(code)


def require_served(client: CodingClient, base: str, secret: str) -> None:
    """Raise ConfigError unless the gateway takes the key and serves the client's API. An empty body costs nothing."""
    until = time.monotonic() + CHECK_TIMEOUT_S
    status, said = _asked(base + client.path, secret)
    while status == 401 and time.monotonic() < until:  # until the gateway knows the key
        time.sleep(CHECK_EVERY_S)
        status, said = _asked(base + client.path, secret)
    if status == 0:
        raise NoEngine(
            f"no gateway answers at {base} ({said}); `{command('status')}` shows what runs; --url names another gateway"
        )
    if status in (404, 405, 501):
        raise ConfigError(f"the gateway at {base} does not serve {client.path}, which {client.program} speaks")
    if status in (401, 403):
        raise ConfigError(
            f"the gateway at {base} refuses this deployment's key ({said}); it may be another deployment's: check --url"
        )


def _asked(url: str, secret: str) -> tuple[int, str]:
    """Status and beginning of the body; 0 and the reason without an answer."""
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    request = urllib.request.Request(url, b"{}", headers)  # noqa: S310  the operator's own URL
    try:
        with urllib.request.urlopen(request, timeout=CHECK_TIMEOUT_S) as response:  # noqa: S310
            return response.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(300).decode(errors="replace")
    except (OSError, ValueError) as error:
        return 0, str(error)


def _ended(arguments: list[str], environment: dict[str, str]) -> int:
    """Run the client on this terminal to its end; its exit code. A Ctrl-C is the client's alone; a signal that ends
    this command ends the client first."""
    with subprocess.Popen(arguments, env=environment) as child:
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT,)}
        before |= {
            number: signal.signal(number, lambda *_: child.terminate()) for number in (signal.SIGTERM, signal.SIGHUP)
        }
        try:
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return code if code >= 0 else 128 - code
