"""Checks a whole deployment: settings, stores, processes, engines, gateway, disk, objectives, diagnosis. Each result
names the next step. The checks start and change nothing, except that they update the objectives' totals.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Set
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from contracts.errors import SlipstreamError
from slipstream.hints import command
from slipstream.settings import Settings

if TYPE_CHECKING:
    from control.diagnosis.diagnosis import DiagnosisOf

VALKEY_TIMEOUT_S = 2.0
MIN_FREE_BYTES = 1 << 30
"""Free disk space below which a check warns: the gateway refuses requests when its journal cannot write."""
JUDGED = timedelta(hours=1)


class Outcome(StrEnum):
    """Result of one check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The subject does not exist, or could not be read because another check failed."""


class Check(msgspec.Struct, frozen=True):
    """One check. step: the next step, or empty."""

    name: str
    outcome: Outcome
    told: str
    step: str = ""


class Health(msgspec.Struct, frozen=True):
    """All checks. ok: whether none has failed."""

    ok: bool
    checks: list[Check]

    @property
    def worst(self) -> Outcome:
        """The worst outcome: FAILED, else WARNING, else OK."""
        found = {each.outcome for each in self.checks}
        return next((each for each in (Outcome.FAILED, Outcome.WARNING) if each in found), Outcome.OK)


Found = tuple[Outcome, str, str]


async def examined(settings: Settings, given: Settings, address: str | None) -> Health:
    """Every check's result. settings: those of the running deployment. given: those that the next start would read.
    address: the router's control service; None for the settings' address. Raises nothing."""
    first = {
        "settings": _settings(given),
        "database": _database(settings),
        "valkey": _valkey(settings),
        "processes": _processes(settings),
        "fleet": _fleet(settings),
        "engines": _engines(settings, address),
        "gateway": _gateway(settings),
        "disk": _disk(settings),
    }
    checks = list(await asyncio.gather(*(_check(name, look) for name, look in first.items())))
    failed = {each.name for each in checks if each.outcome is Outcome.FAILED}
    judged: tuple[Found, Found] = 2 * ((Outcome.SKIPPED, "it needs the database", ""),)
    if "database" not in failed:
        try:
            judged = await _judged(settings)
        except SlipstreamError as error:
            judged = 2 * ((Outcome.FAILED, error.message, ""),)
    checks += (Check(name, *found) for name, found in zip(("objectives", "diagnosis"), judged, strict=True))
    return Health(all(each.outcome is not Outcome.FAILED for each in checks), checks)


async def _check(name: str, look: Awaitable[Found]) -> Check:
    try:
        return Check(name, *await look)
    except SlipstreamError as error:
        return Check(name, Outcome.FAILED, error.message)


async def _settings(settings: Settings) -> Found:
    from slipstream import start_check

    start_check.check(settings)
    warnings = list(start_check.warnings(settings))
    if warnings:
        return Outcome.WARNING, "; ".join(warnings), ""
    return Outcome.OK, "consistent, and every file that they name exists", ""


async def _database(settings: Settings) -> Found:
    from migrations.revision import VERSION_TABLE, newest
    from slipstream.database import connected, ownership_warning

    async with connected(settings) as connection:
        revision = await connection.fetchval(f"SELECT max(version_num) FROM {VERSION_TABLE}")  # noqa: S608
    if revision is None or revision < newest():
        there = "without tables" if revision is None else f"revision {revision}"
        return Outcome.FAILED, f"{there}; this release needs revision {newest()}", f"`{command('config migrate up')}`"
    if revision > newest():
        needed = f"revision {revision}; this release needs revision {newest()}"
        return Outcome.FAILED, needed, "run the release that migrated it"
    warning = await ownership_warning(settings)
    if warning is not None:
        return Outcome.WARNING, warning, ""
    return Outcome.OK, f"reachable, at revision {revision}", ""


async def _valkey(settings: Settings) -> Found:
    from storage.valkey import Valkey

    valkey = Valkey(settings.valkey_url, VALKEY_TIMEOUT_S)
    await valkey.start()
    try:
        async with asyncio.timeout(VALKEY_TIMEOUT_S):
            await valkey.wait_ready()
    except TimeoutError:
        refuses = settings.gateway.limits.when_unavailable == "refuse"
        until = "requests with limits get 503" if refuses else "each gateway limits by itself"
        step = f"`{command('logs valkey')}`, or check local.valkey_url; until then {until}"
        return Outcome.FAILED, f"no answer in {VALKEY_TIMEOUT_S:g} s", step
    finally:
        await valkey.stop()
    return Outcome.OK, "reachable", ""


async def _processes(settings: Settings) -> Found:
    from infra.local.child import State
    from infra.local.control import ask

    answer = await ask(settings.data.control_socket, "status")
    if answer is None:
        return Outcome.SKIPPED, "no `slipstream up` runs on this data folder", ""
    down = [each.name for each in answer.processes if each.state is not State.READY]
    if down:
        return Outcome.FAILED, f"not ready: {', '.join(down)}", f"`{command(f'logs {down[0]}')}`"
    return Outcome.OK, f"{len(answer.processes)} are ready", ""


async def _fleet(settings: Settings) -> Found:
    from slipstream.gateway_refusals import gateway_refusals

    if refusals := await gateway_refusals(settings):
        return (
            Outcome.FAILED,
            "; ".join(refusals),
            f"correct it, or `{command('fleet rollback')}` to the version that serves",
        )
    return Outcome.OK, "no gateway refuses a version", ""


async def _engines(settings: Settings, address: str | None) -> Found:
    from slipstream.replicas import replicas_of

    replicas = await asyncio.to_thread(replicas_of, settings, address)
    if replicas is None:
        return Outcome.FAILED, "no router answers", f"`{command('status')}`; --address names its control service"
    unusable = [f"{each.id} ({each.state})" for each in replicas if not each.usable]
    if not replicas or len(unusable) == len(replicas):
        message = f"none takes requests: {', '.join(unusable)}" if unusable else "the fleet has none"
        return Outcome.FAILED, message, f"`{command('fleet')}`"
    message = f"{len(unusable)} of {len(replicas)} take no requests: {', '.join(unusable)}" if unusable else ""
    if faults := await _probed(settings, {(each.pool, each.url) for each in replicas if each.usable}):
        return Outcome.FAILED, "; ".join((*faults, message) if message else faults), f"`{command('fleet')}`"
    if message:
        return Outcome.WARNING, message, f"`{command('fleet')}`"
    return Outcome.OK, f"{len(replicas)} take requests and serve their models", ""


async def _probed(settings: Settings, usable: Set[tuple[str, str]]) -> list[str]:
    """The faults that `config check --probe` finds in these engines, each given by its pool and URL. The router
    considers an engine healthy whatever models it serves."""
    from slipstream.database import live_fleet
    from slipstream.engine_probe import Asked, asked_of, probe

    plan = asked_of(settings, await live_fleet(settings))
    pools = (
        replace(pool, replicas=tuple(each for each in pool.replicas if (pool.name, each.url) in usable))
        for pool in plan.pools
    )
    return await probe(settings, Asked(plan.models, tuple(pools)))


async def _gateway(settings: Settings) -> Found:
    from slipstream.processes import public_probe, public_url

    url = public_url(settings)
    if await public_probe(settings, "/readyz")():
        return Outcome.OK, f"{url} serves", ""
    return Outcome.FAILED, f"{url}/readyz does not return 200", f"`{command('status')}`, `{command('logs gateway-1')}`"


async def _disk(settings: Settings) -> Found:
    usage = shutil.disk_usage(settings.data.path if settings.data.path.is_dir() else ".")
    message = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.0f} GB are free at {settings.data.path}"
    if usage.free < MIN_FREE_BYTES:
        return Outcome.WARNING, message, "free some space: requests are refused when the journal cannot be written"
    return Outcome.OK, message, ""


async def _judged(settings: Settings) -> tuple[Found, Found]:
    """The checks of objectives and diagnosis, both from the diagnosis that `slipstream diagnose` would make now."""
    from control.diagnosis.diagnosis import DiagnosisQuery
    from control.slo.adoption import in_force
    from slipstream.administration import administration
    from slipstream.diagnosis_now import diagnosis_now

    end = datetime.now(UTC)
    query = DiagnosisQuery(start=end - JUDGED, end=end, before_start=end - 2 * JUDGED)
    async with administration(settings, "slipstream doctor") as call:
        found = await diagnosis_now(call, settings, query, None)
        _, objectives = await in_force(call.connection)
    return _objectives(len(objectives), found), _diagnosis(found)


def _objectives(number: int, found: DiagnosisOf) -> Found:
    if not number:
        return Outcome.SKIPPED, "none is in force", "a worker puts them in force"
    burning = [f"{each.tier.value}, {each.length.value}" for each in found.burning]
    if burning:
        return Outcome.FAILED, f"error budgets burn: {'; '.join(burning)}", f"`{command('diagnose')}`"
    return Outcome.OK, f"no error budget of {number} burns; `{command('diagnose slo')}` shows what each kept", ""


def _diagnosis(found: DiagnosisOf) -> Found:
    if found.primary is not None:
        fix = found.primary.fixes[0].told if found.primary.fixes else ""
        return Outcome.WARNING, f"{found.primary.cause.value}: {' '.join(found.primary.evidence)}", fix
    if found.burning:
        return Outcome.WARNING, "an alert fires, and no cause is above its threshold", f"`{command('diagnose')}`"
    return Outcome.OK, f"{found.outcome.replace('_', ' ')}; requests in the last hour: {found.requests:,}", ""
