"""`slipstream run`: starts a coding agent on this deployment, with a key that is revoked when it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import click

from contracts.base_url import base_url
from contracts.errors import ConfigError
from contracts.generation import Tier
from slipstream.coding_clients import CLIENTS, Served, environment_of
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.lent_key import Payer, lent_key, require_key_accepted
from slipstream.money import Money
from slipstream.process_end import termination_signals

REQUESTS_PER_MINUTE, MAX_CONCURRENCY = 600, 16
"""More than an agent and its subagents send, less than a runaway loop."""


@click.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@deployment_options
@click.option("--model", help="A chat model, or an alias. Default: the first chat model that the project may use.")
@click.option("--organization", default="demo", show_default=True, help="Organization that pays: id or name.")
@click.option("--project", default="default", show_default=True, help="Project of the organization: id or name.")
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

    The command configures the client only by environment variables and flags, and does not change the client's settings
    files. It exits with the client's exit code.

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

    base = base_url(url or settings.gateway.console.public_url or public_url(settings))
    limits = NewLimits(
        requests_per_minute=REQUESTS_PER_MINUTE, max_concurrency=MAX_CONCURRENCY, money_micro_per_month=money_per_month
    )
    payer = Payer(organization, project)
    with lent_key(deployment, f"run {client}", payer, limits, model=model, tiers={Tier.CHAT}, hours=hours) as lent:
        require_key_accepted(base, chosen.path, chosen.program, lent.secret)
        served = Served(base, lent.secret, lent.model.name, lent.model.context_tokens)
        print(
            f"{client} with {lent.model.name} at {base}; key {lent.key.display} is revoked when it ends, "
            f"and expires in {hours:g} h",
            file=sys.stderr,
        )
        if served.context_tokens < chosen.least_tokens:
            print(
                f"warning: {served.model} has a context of {served.context_tokens:,} tokens; {client} needs at least "
                f"{chosen.least_tokens:,}",
                file=sys.stderr,
            )
        code = _ended([program, *chosen.arguments(served), *arguments], environment_of(chosen, served, os.environ))
    sys.exit(code)


def _ended(arguments: list[str], environment: dict[str, str]) -> int:
    """Run the client on this terminal to its end and return its exit code. Ctrl-C reaches only the client. A signal
    that ends this command ends the client first."""
    with subprocess.Popen(arguments, env=environment) as child:
        before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
        before |= {number: signal.signal(number, lambda *_: child.terminate()) for number in termination_signals()}
        try:
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return code if code >= 0 else 128 - code
