"""The state of every engine as the deployment's router sees it, in words, for commands and for `up` after its start."""

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
    """state: `word`, with `reason` if it is not usable. known: whether the router has probed it."""

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
        """Whether an operator took it out of service: it is drained, or will be soon."""
        return self.word.startswith("drain")


def replicas_of(settings: Settings, address: str | None = None) -> list[ReplicaStatus] | None:
    """Every engine, including those on other machines; None if no router of this deployment answers.

    address: `host:port` of its control service; None for the settings' address.
    """
    from router.control.client import ControlClient

    if not settings.data.reader_token_file.exists():  # nothing ever ran here, and a query must not create the token
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
    """The replica once the router has probed it; None if it has not in time, or if no router answers."""
    until = time.monotonic() + wait_s
    while True:
        found = next((each for each in replicas_of(settings) or () if each.id == replica_id), None)
        if found is not None and found.known:
            return found
        if time.monotonic() >= until:
            return None
        time.sleep(LOOK_EVERY_S)  # another process probes it


def state(replica: pb.Replica) -> str:
    """The state in a few words, with the reason if it is not usable."""
    word, reason = state_and_reason(replica)
    return f"{word}{', but ' if word == 'healthy' else ': '}{reason}" if reason else word


def state_and_reason(replica: pb.Replica) -> tuple[str, str]:
    """The state in a word or two, and its reason; empty if the word is enough."""
    if replica.draining:
        return (f"draining, {replica.leases} left" if replica.leases else "drained"), ""
    if replica.breaker != "closed":
        return f"breaker {replica.breaker}", replica.breaker_reason
    if replica.health != "healthy" or replica.detail:
        return replica.health, replica.detail
    return ("healthy" if replica.weight else "drained"), ""
