"""`slipstream run`: a coding agent on this deployment, with a key that is revoked when it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import click
import msgspec

from contracts.errors import ConfigError, InvalidField, NoEngine, SlipstreamError
from slipstream.coding_clients import CLIENTS, CodingClient, Served, environment_of
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.hints import command
from slipstream.money import Money

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from contracts.desired_state import Model
    from control.api.call import AdminCall
    from control.tenants.keys import Key
    from control.tenants.projects import Project

REQUESTS_PER_MINUTE, MAX_CONCURRENCY = 600, 16
"""More than an agent with its children sends, less than a runaway loop."""
CHECK_TIMEOUT_S = 10.0
CHECK_EVERY_S = 0.2
END_TIMEOUT_S = 10.0
LIFETIME_S, RENEWAL_S, RETRY_S = 3_600.0, 1_200.0, 60.0
"""A key expires an hour after this command was killed: the command renews it three times an hour."""


class _Minted(msgspec.Struct, frozen=True):
    key: Key
    secret: str
    model: Model


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
    from slipstream.processes import public_url

    base = (url or settings.gateway.console.public_url or public_url(settings)).rstrip("/").removesuffix("/v1")
    until = datetime.now(UTC) + timedelta(hours=hours)
    for number in (signal.SIGTERM, signal.SIGHUP):  # by default they would leave the key behind
        signal.signal(number, _leave)
    minted = _minted(deployment, client, model, organization, project, until, money_per_month)
    try:
        require_served(chosen, base, minted.secret)
        served = Served(base, minted.secret, minted.model.name, minted.model.context_tokens)
        print(
            f"{client} with {minted.model.name} at {base}; key {minted.key.display} is revoked when it ends, "
            f"and expires in {hours:g} h",
            file=sys.stderr,
        )
        with _renewed(deployment, minted.key, until):
            code = _ended([program, *chosen.arguments(served), *arguments], environment_of(chosen, served, os.environ))
    finally:
        _revoke(deployment, minted.key)
    sys.exit(code)


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _minted(
    deployment: Deployment,
    client: str,
    model: str | None,
    organization: str,
    project: str,
    until: datetime,
    money_micro: int | None,
) -> _Minted:
    from control.fleet.models import list_models
    from control.tenants.keys import NewKey, create_key
    from control.tenants.limits import ALL_TIERS, NewLimits, put_limits
    from control.tenants.projects import get_project
    from gateway.limits.levels import Level
    from slipstream.administration import account, administer
    from slipstream.tenants import project_named

    limits = NewLimits(
        requests_per_minute=REQUESTS_PER_MINUTE, max_concurrency=MAX_CONCURRENCY, money_micro_per_month=money_micro
    )

    async def work(call: AdminCall) -> _Minted:
        project_id: UUID = await project_named(call.connection, organization, project)
        chosen = _model((await list_models(call)).data, await get_project(call, project_id), model)
        made = await create_key(
            call, project_id, NewKey(name=f"run {client} ({account()})"[:200], expires_at=_next_end(until))
        )
        await put_limits(call, Level.KEY, made.key.id, ALL_TIERS, limits)
        return _Minted(made.key, made.secret, chosen)

    return administer(deployment, work)


def _model(models: Sequence[Model], project: Project, asked: str | None) -> Model:
    """The chat model of this name or alias, or the first one. Raises InvalidField that names the usable ones."""
    from contracts.generation import Tier

    open_to_it = project.tiers is None or Tier.CHAT in project.tiers
    usable = [
        each
        for each in models
        if open_to_it and each.tier is Tier.CHAT and (project.models is None or each.name in project.models)
    ]
    found = [each for each in usable if asked is None or asked == each.name or asked in each.aliases]
    if not found:
        what = "no chat model" if asked is None else f"no chat model {asked!r}"
        names = ", ".join(each.name for each in usable) or "none"
        raise InvalidField(f"project {project.name!r} may use {what}; it may use: {names}", param="model")
    return found[0]


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


def _next_end(until: datetime) -> datetime:
    return min(until, datetime.now(UTC) + timedelta(seconds=LIFETIME_S))


@contextlib.contextmanager
def _renewed(deployment: Deployment, key: Key, until: datetime) -> Iterator[None]:
    """Move the key's end onward, `until` at most, as long as this runs: a killed command takes nothing back."""
    from control.tenants.keys import KeyChanges, update_key
    from slipstream.administration import administer

    context, ended = click.get_current_context(), threading.Event()

    async def work(call: AdminCall) -> Key:
        return await update_key(call, key.id, KeyChanges(expires_at=_next_end(until)))

    def renew() -> None:
        end, pause_s = key.expires_at, RENEWAL_S
        while end != until and not ended.wait(pause_s):
            try:
                with context.scope(cleanup=False):
                    end, pause_s = administer(deployment, work).expires_at, RENEWAL_S
            except SlipstreamError:
                pause_s = RETRY_S  # the client is on the terminal; a key that has expired says so there

    thread = threading.Thread(target=renew, name="renew key", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_TIMEOUT_S)


def _revoke(deployment: Deployment, key: Key) -> None:
    """Revoke it, or print the command; it expires in any case."""
    from control.tenants.keys import revoke_key
    from slipstream.administration import administer

    async def work(call: AdminCall) -> None:
        await revoke_key(call, key.id)

    try:
        administer(deployment, work)
    except SlipstreamError as error:
        again = command(f"keys revoke {key.id}")
        print(f"the key was not revoked ({error.message}); run `{again}`", file=sys.stderr)
