"""One modelled engine with its hidden speed."""

from __future__ import annotations

import random
from collections.abc import Callable

from engines.drivers.base import Load
from engines.performance.block_cache import Block
from engines.performance.catalog import node
from engines.performance.engine import ModelledEngine
from engines.performance.roofline import Roofline
from tools.simulator.config import SimulatorConfig

SMALLEST_FACTOR = 0.5
"""Lower bound of the noise: a step cannot take a negative time."""


class ModelledReplica:
    """name: the router's name for it. speed: its true rate, which no code outside this file reports to the router."""

    def __init__(
        self, index: int, config: SimulatorConfig, listener: Callable[[str, bool, bytes], None] | None = None
    ) -> None:
        # seeded by index only, so that every policy gets the same machines
        rng = random.Random(f"{config.seed} replica {index}")
        self.index = index
        self.name = f"replica-{index}"
        self.speed = dict(config.slow).get(index, rng.uniform(1 - config.spread, 1 + config.spread))
        self._reported = config.reported_capacity
        sigma = config.step_noise

        def noise() -> float:
            return max(SMALLEST_FACTOR, rng.gauss(1.0, sigma))

        def notify(stored: bool, block: Block) -> None:
            if listener is not None and isinstance(block, bytes):
                listener(self.name, stored, block)

        self.engine = ModelledEngine(
            Roofline(node(config.node), self.speed), config.limits, noise, None if listener is None else notify
        )

    def load(self) -> Load:
        """The engine's report, in SGLang's terms: evictable cache does not count as used."""
        engine, part = self.engine, self._reported
        used, capacity = int(engine.used_tokens * part), int(engine.capacity_tokens * part)
        return Load(engine.running, len(engine.waiting), used, capacity)
