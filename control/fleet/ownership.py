"""Decides what defines the fleet: the settings at first and whenever they change, and administrators' edits in between.

Every version records the settings that it descends from, and every gateway records those of its last start. A start
with the same settings changes nothing, so edits survive it. Gateways with different settings do not replace the fleet
in turn: only settings that are new to their gateway replace it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import asyncpg
import msgspec

from contracts.desired_state import DesiredState
from control.fleet.difference import undone
from control.fleet.edits import released
from control.fleet.revision import Revision, Written, at, digest_of, lock, newest, write
from storage.audit_log import Actor, Change

SEED = "seed"
"""The action of a version that settings created."""
NOTED = "SELECT settings_digest FROM gateway.fleet_gateways WHERE instance = $1"
NOTE = """
INSERT INTO gateway.fleet_gateways (instance, settings_digest) VALUES ($1, $2)
ON CONFLICT (instance) DO UPDATE SET settings_digest = excluded.settings_digest
"""
KNOWN = "SELECT EXISTS (SELECT FROM gateway.desired_states WHERE settings_digest = $1)"
# Rows of releases without edits have no action: settings created them all.
UNEDITED = """
SELECT version FROM gateway.desired_states WHERE settings_digest = $1 AND action = 'seed' OR action IS NULL
 ORDER BY version DESC LIMIT 1
"""


class Claim(StrEnum):
    """Effect of a start with settings on the fleet in force."""

    KEEP = "keep"
    """The fleet descends from these settings, and stays."""
    REPLACE = "replace"
    """The settings are new, and replace the fleet."""
    STALE = "stale"
    """Other settings are newer than these: their fleet stays."""
    RELEASE = "release"
    """The settings are new, but would interrupt a running release: the fleet in force stays."""


class Settled(msgspec.Struct, frozen=True):
    """Outcome of the settings. lost: edits that they replace, a line each. releases: models whose release runs."""

    claim: Claim
    revision: Revision
    lost: list[str] = []
    releases: list[str] = []
    change: Change | None = None


def claim(force: Revision, settings: DesiredState, noted: str | None, known: bool) -> Claim:
    """Apply the rule. force: the version in force; noted: the digest of this gateway's settings at its last start, None
    for its first; known: whether any version descends from these settings."""
    digest = digest_of(settings)
    if force.state.version == 0:
        return Claim.REPLACE
    if force.settings_digest == digest:
        return Claim.KEEP
    if noted == digest or (noted is None and known):
        return Claim.STALE
    return Claim.RELEASE if broken_off(force.state, settings) else Claim.REPLACE


def broken_off(state: DesiredState, settings: DesiredState) -> list[str]:
    """The models whose running release the settings would interrupt."""
    return [
        model.name
        for model in state.models
        if released(model) and model != settings.model(model.name)  # settings never name a release
    ]


async def foreseen(connection: asyncpg.Connection[Any], settings: DesiredState, instance: str) -> Settled:
    """The effect of a start of this gateway with these settings. Writes nothing.

    Raises ConfigError for a version of a newer release.
    """
    force, digest = await newest(connection), digest_of(settings)
    noted = await connection.fetchval(NOTED, instance)
    decided = claim(force, settings, noted, await connection.fetchval(KNOWN, digest))
    if decided is Claim.RELEASE:
        return Settled(decided, force, releases=broken_off(force.state, settings))
    if decided is not Claim.REPLACE:
        return Settled(decided, force)
    state = msgspec.structs.replace(settings, version=force.state.version + 1)
    return Settled(decided, Revision(state, digest, SEED), await _undone(connection, force, settings))


async def settle(connection: asyncpg.Connection[Any], settings: DesiredState, instance: str, actor: Actor) -> Settled:
    """Apply the rule for a gateway that starts, in the caller's transaction, which writes the change to the audit log.

    Raises ConfigError for a version of a newer release.
    """
    await lock(connection)
    settled = await foreseen(connection, settings, instance)
    if settled.claim is Claim.RELEASE:  # not noted: the next start tries again
        return settled
    digest = digest_of(settings)
    await connection.execute(NOTE, instance, digest)
    if settled.claim is not Claim.REPLACE:
        return settled
    written = await write(connection, lambda _state: settings, actor=actor.name, action=SEED, settings_digest=digest)
    return msgspec.structs.replace(settled, revision=written.after, change=_change(written, settled.lost))


def warning_of(settled: Settled) -> str | None:
    """The warning for the person who changed the settings, if any."""
    version = settled.revision.state.version
    match settled.claim:
        case Claim.REPLACE if settled.lost:
            return (
                f"the settings' models and pools have changed and are in force as version {version}; it replaces the "
                f"edits that were made since the previous settings: {'; '.join(settled.lost)}. Repeat the edits that "
                f"you still want; `slipstream fleet rollback {version - 1}` brings all of that version back, and "
                "undoes these settings (--dry-run shows them)"
            )
        case Claim.STALE:
            return (
                f"version {version} of models and pools, which is in force, comes from other settings that are newer "
                "than these, so nothing is written. Give all gateways the same settings; `slipstream fleet diff` "
                "shows the differences between versions"
            )
        case Claim.RELEASE:
            return (
                "the settings' models and pools have changed but are not in force, because a release of "
                f"{', '.join(settled.releases)} runs. Version {version} stays; promote the release or roll it back, "
                "then start again"
            )
    return None


async def _undone(connection: asyncpg.Connection[Any], force: Revision, settings: DesiredState) -> list[str]:
    """Edits since the settings in force were written, which these settings do not contain."""
    version = await connection.fetchval(UNEDITED, force.settings_digest)
    unedited = None if version is None else await at(connection, version)
    return [] if unedited is None else undone(unedited.state, force.state, settings)


def _change(written: Written, lost: list[str]) -> Change:
    after = {**msgspec.to_builtins(written.after.state), **({"replaced_edits": lost} if lost else {})}
    return msgspec.structs.replace(written.change, after=after)
