"""A key of this deployment for one command: created with its own limits, and revoked when the command ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import click
import msgspec

from contracts.errors import ConfigError, InvalidField, NoEngine, SlipstreamError
from contracts.pooling import Task
from contracts.printable import printable
from slipstream.hints import command
from slipstream.process_end import termination_signals

if TYPE_CHECKING:
    from contracts.desired_state import Model
    from contracts.generation import Tier
    from control.api.call import AdminCall
    from control.tenants.keys import Key
    from control.tenants.limits import NewLimits
    from control.tenants.projects import Project
    from slipstream.commands.options import Deployment


LIFETIME_S, RENEWAL_S, LOOK_S = 3_600.0, 1_200.0, 60.0
"""A key expires within an hour after its command was killed: the command renews it three times an hour, and checks the
clock each minute, because the machine may have slept."""
LOAD_RATES = {"requests_per_minute": 1_000_000, "tokens_per_minute": 1_000_000_000}
"""Limits of a key for a command that sends many requests: above the number that it sends. The limits of the key's
organization and project still apply."""
LOAD_HOURS = 24
END_TIMEOUT_S = 10.0
CHECK_TIMEOUT_S, CHECK_EVERY_S = 10.0, 0.2


class Payer(NamedTuple):
    """The id or name of the organization and of its project."""

    organization: str
    project: str


class LentKey(msgspec.Struct, frozen=True):
    """A key, its secret, and the model that the command uses."""

    key: Key
    secret: str
    model: Model


@contextlib.contextmanager
def lent_key(
    deployment: Deployment,
    name: str,
    payer: Payer,
    limits: NewLimits,
    *,
    model: str | None,
    tiers: Collection[Tier],
    hours: float,
) -> Iterator[LentKey]:
    """A new key while the block runs. A signal that would end the process revokes the key first.

    name: the start of the key's name. model: name or alias; None for the first of these tiers that the project may use.
    hours: the key's longest life. Raises InvalidField, which names the usable models.
    """
    from slipstream.administration import account

    for number in termination_signals():  # their default actions would leave the key behind
        signal.signal(number, _leave)
    until = datetime.now(UTC) + timedelta(hours=hours)
    lent = None
    try:
        with _signals_wait():
            lent = _made(deployment, f"{name} ({account()})"[:200], payer, limits, model, tiers, until)
        with _renewed(deployment, lent.key, until):
            yield lent
    finally:
        if lent is not None:
            with _signals_wait():
                _revoke(deployment, lent.key)


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Delay signals that would end the process until the end of the block: otherwise, it would leave a key behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require_key_accepted(base: str, path: str, program: str, secret: str) -> None:
    """Return once the gateway accepts the new key at the program's path. The check's empty body costs nothing.

    Raises NoEngine if no gateway answers, ConfigError if it refuses the key or does not serve the path.
    """
    until = time.monotonic() + CHECK_TIMEOUT_S
    status, reason = _status(base + path, secret)
    while status == 401 and time.monotonic() < until:  # until the gateway knows the key
        time.sleep(CHECK_EVERY_S)
        status, reason = _status(base + path, secret)
    if status == 0:
        raise NoEngine(
            f"no gateway answers at {base} ({reason}); `{command('status')}` shows what runs; "
            "--url names another gateway"
        )
    if status in (301, 302, 303, 307, 308):
        raise ConfigError(f"the gateway at {base} redirects to another address; give that one with --url")
    if status in (404, 405, 501):
        raise ConfigError(f"the gateway at {base} does not serve {path}, which {program} speaks")
    if status in (401, 403):
        raise ConfigError(
            f"the gateway at {base} refuses this deployment's key ({reason}); it may be another deployment's: "
            "check --url"
        )


def _status(url: str, secret: str) -> tuple[int, str]:
    """The status and, for an error, the start of the body; 0 and the reason if no server answers."""
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    request = urllib.request.Request(url, b"{}", headers)  # noqa: S310  the operator's own URL
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=CHECK_TIMEOUT_S) as response:
            return response.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, printable(error.read(300).decode(errors="replace"))
    except (OSError, ValueError) as error:
        return 0, str(error)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would send the key to any address that a server names."""

    def redirect_request(self, *_: object) -> None:
        """Make no further request."""


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _made(
    deployment: Deployment,
    name: str,
    payer: Payer,
    limits: NewLimits,
    model: str | None,
    tiers: Collection[Tier],
    until: datetime,
) -> LentKey:
    from control.fleet.models import list_models
    from control.tenants.keys import NewKey, create_key
    from control.tenants.limits import ALL_TIERS, put_limits
    from control.tenants.projects import get_project
    from gateway.limits.levels import Level
    from slipstream.administration import administer
    from slipstream.tenants import project_named

    async def work(call: AdminCall) -> LentKey:
        project_id: UUID = await project_named(call.connection, *payer)
        chosen = _model((await list_models(call)).data, await get_project(call, project_id), model, tiers)
        made = await create_key(call, project_id, NewKey(name=name, expires_at=_next_end(until)))
        await put_limits(call, Level.KEY, made.key.id, ALL_TIERS, limits)
        return LentKey(made.key, made.secret, chosen)

    return administer(deployment, work)


def _model(models: Sequence[Model], project: Project, name: str | None, tiers: Collection[Tier]) -> Model:
    usable = [
        each
        for each in models
        if each.tier in tiers
        and each.task is Task.TEXT
        and (project.tiers is None or each.tier in project.tiers)
        and (project.models is None or each.name in project.models)
    ]
    found = [each for each in usable if name is None or name == each.name or name in each.aliases]
    if not found:
        kind = f"{next(iter(tiers))} model" if len(tiers) == 1 else "model"
        missing = f"no {kind}" if name is None else f"no {kind} {name!r}"
        names = ", ".join(each.name for each in usable) or "none"
        raise InvalidField(f"project {project.name!r} may use {missing}; it may use: {names}", param="model")
    return found[0]


def _next_end(until: datetime) -> datetime:
    return min(until, datetime.now(UTC) + timedelta(seconds=LIFETIME_S))


@contextlib.contextmanager
def _renewed(deployment: Deployment, key: Key, until: datetime) -> Iterator[None]:
    """Extend the key's life while the block runs, up to `until`: a killed command cannot revoke its key."""
    from control.tenants.keys import KeyChanges, update_key
    from slipstream.administration import administer

    context, ended = click.get_current_context(), threading.Event()

    async def work(call: AdminCall) -> Key:
        return await update_key(call, key.id, KeyChanges(expires_at=_next_end(until)))

    def renew() -> None:
        end, due = key.expires_at, timedelta(seconds=LIFETIME_S - RENEWAL_S)
        while end is not None and end != until and not ended.wait(LOOK_S):
            if datetime.now(UTC) < end - due:
                continue
            # The client has the terminal, and shows there that a key has expired.
            with contextlib.suppress(SlipstreamError, OSError), context.scope(cleanup=False):
                end = administer(deployment, work).expires_at

    thread = threading.Thread(target=renew, name="renew key", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_TIMEOUT_S)


def _revoke(deployment: Deployment, key: Key) -> None:
    """Revoke the key or, on failure, print the command that does. The key expires in any case."""
    from control.tenants.keys import revoke_key
    from slipstream.administration import administer

    async def work(call: AdminCall) -> None:
        async with asyncio.timeout(END_TIMEOUT_S):
            await revoke_key(call, key.id)

    try:
        administer(deployment, work)
    except (SlipstreamError, OSError) as error:
        to_revoke = command(f"keys revoke {key.id}")
        print(f"the key was not revoked ({error or 'no answer'}); run `{to_revoke}`", file=sys.stderr)
