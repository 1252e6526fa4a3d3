"""The simulator's settings. All of them come from the command line or a benchmark; there is no settings file."""

from __future__ import annotations

from typing import Annotated

import msgspec

from engines.performance.engine import EngineLimits
from router.config import SloClass
from tools.simulator.outcome import PROMISES


class SimulatorConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fleet of modelled engines behind one router."""

    node: str = "70b-fp8-8xh100"
    """A node of engines/performance/catalog.py."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8
    """Engines in the pool."""
    seed: int = 0
    """Seed of everything random: hidden rates, noise, poll times, the policies' own ties."""
    spread: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.3
    """Every replica's true speed is drawn from 1 ± this; the router does not know it."""
    step_noise: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    """Relative standard deviation of a step's time."""
    network_s: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.001
    """Time from a gateway to an engine, and from a gateway to the router."""
    poll_interval_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 1.0
    """Time between two polls of a replica's load, as in the router's settings."""
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] = 2_048
    """Largest max_tokens of any client, since outputs are not known beforehand."""
    max_concurrency: Annotated[int, msgspec.Meta(ge=1)] = 256
    """Leases per replica in the desired state."""
    retries: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of times that a client retries at the announced time."""
    reported_capacity: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """KV memory that engines report, relative to the real one; 0 if none is reported. Their caches are unaffected."""
    warm_up: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.2
    """Fraction of first arrivals that are simulated but not counted: caches are cold and rates unknown."""
    slow: tuple[tuple[int, float], ...] = ()
    """(replica, speed): replicas with a given speed instead of a drawn one, to simulate a bad machine."""
    promises: tuple[SloClass, ...] = PROMISES
    """Promises of the chat tier, by rising length of the prompt: the measure of goodput. The router's own objectives
    are separate."""
    limits: EngineLimits = EngineLimits()
    """Launch settings of the engines."""
