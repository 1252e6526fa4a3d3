"""Every engine as the router of the deployment sees it, in words: for commands, and for `up` once it has started."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from contracts.errors import SlipstreamError

if TYPE_CHECKING:
    from contracts.proto import control_pb2 as pb
    from slipstream.settings import Settings

LOOK_EVERY_S = 0.2


class ReplicaStatus(msgspec.Struct, frozen=True):
    """state: `word`, with `reason` where it is not usable. known: it has been asked."""

    id: str
    pool: str
    url: str
    state: str
    usable: bool
    known: bool
    word: str
    reason: str

    @property
    def drained(self) -> bool:
        """An operator took it out of service: it is drained, or about to be."""
        return self.word.startswith("drain")


def replicas_of(settings: Settings, address: str | None = None) -> list[ReplicaStatus] | None:
    """Every engine, those elsewhere too; None when no router of this deployment answers.

    address: `host:port` of its control service; None: by the settings.
    """
    from router.control.client import ControlClient

    if not settings.data.reader_token_file.exists():  # nothing has ever run here, and asking makes nothing
        return None
    try:
        with ControlClient(address or settings.control_address, settings.reader_token) as control:
            return [
                ReplicaStatus(
                    replica.id,
                    pool.name,
                    replica.url,
                    state(replica),
                    replica.usable,
                    replica.health != "unknown",
                    *state_and_reason(replica),
                )
                for pool in control.fleet().pools
                for replica in pool.replicas
            ]
    except SlipstreamError:
        return None


def known_replica(settings: Settings, replica_id: str, wait_s: float) -> ReplicaStatus | None:
    """The replica once the router has asked it; None when it has not in time, or no router answers."""
    until = time.monotonic() + wait_s
    while True:
        found = next((each for each in replicas_of(settings) or () if each.id == replica_id), None)
        if found is not None and found.known:
            return found
        if time.monotonic() >= until:
            return None
        time.sleep(LOOK_EVERY_S)  # another process's state


def state(replica: pb.Replica) -> str:
    """In a few words, with the reason where it is not usable."""
    word, reason = state_and_reason(replica)
    return f"{word}{', but ' if word == 'healthy' else ': '}{reason}" if reason else word


def state_and_reason(replica: pb.Replica) -> tuple[str, str]:
    """A word or two, and the reason; empty: the word says it."""
    if replica.draining:
        return (f"draining, {replica.leases} left" if replica.leases else "drained"), ""
    if replica.breaker != "closed":
        return f"breaker {replica.breaker}", replica.breaker_reason
    if replica.health != "healthy" or replica.detail:
        return replica.health, replica.detail
    return ("healthy" if replica.weight else "drained"), ""
