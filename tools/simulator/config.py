"""What is simulated. All of it is given on the command line or by a benchmark; there is no settings file."""

from __future__ import annotations

from typing import Annotated

import msgspec

from engines.performance.engine import EngineLimits
from router.config import SloClass
from tools.simulator.outcome import PROMISES


class SimulatorConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fleet of modelled engines behind one router."""

    node: str = "70b-fp8-8xh100"
    """One of engines/performance/catalog.py."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8
    """Engines in the pool."""
    seed: int = 0
    """Of everything random: hidden rates, noise, poll times, the policies' own ties."""
    spread: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.3
    """Every replica's true speed is drawn from 1 ± this; nothing tells the router."""
    step_noise: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    """Relative standard deviation of a step's time."""
    network_s: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.001
    """From a gateway to an engine, and from a gateway to the router."""
    poll_interval_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 1.0
    """Between two polls of a replica's load, as in the router's settings."""
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] = 2_048
    """What every client asks for at most: outputs are not known beforehand."""
    max_concurrency: Annotated[int, msgspec.Meta(ge=1)] = 256
    """Leases per replica in the desired state."""
    retries: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How often a client who was told when to come back does so."""
    reported_capacity: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """What engines report of their KV memory, in parts of what it is; 0: nothing. Their caches are unaffected."""
    warm_up: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.2
    """First part of the arrivals that is simulated but not counted: caches are cold and rates unknown."""
    slow: tuple[tuple[int, float], ...] = ()
    """(replica, speed): replicas with a given speed instead of a drawn one, to play a bad machine."""
    promises: tuple[SloClass, ...] = PROMISES
    """Of the chat tier, by rising length of the prompt: what goodput is measured by. What the router places by are its
    own."""
    limits: EngineLimits = EngineLimits()
    """Launch settings of the engines."""
