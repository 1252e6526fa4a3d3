"""Holds the children of one data folder: starts them, reports on them, stops them in an order that loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from infra.local.child import Child, ChildSpec, ChildStatus
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder


class Supervisor:
    """Children by name, in start order."""

    def __init__(self, data: DataFolder, config: LocalConfig, notice: Callable[[str], None] = lambda _: None) -> None:
        """notice: called with a sentence on each unplanned event of a child."""
        self._notice = notice
        self._data = data
        self._config = config
        self._children: dict[str, Child] = {}
        self.stop_requested = asyncio.Event()

    def add(self, spec: ChildSpec) -> Child:
        """Start a child and watch it; do not wait until it is ready."""
        child = self._children[spec.name] = Child(spec, self._data.log(spec.name), self._config, self._notice)
        child.start()
        return child

    def status(self) -> tuple[ChildStatus, ...]:
        """The status of each child, in start order."""
        return tuple(child.status() for child in self._children.values())

    async def stop(self, stages: Sequence[tuple[str, ...]]) -> None:
        """Stop all children, stage by stage; a stage has the children whose names start with one of its words.

        Children of no stage stop last. Never raises.
        """
        remaining = dict(self._children)
        for stage in (*stages, ("",)):
            together = [name for name in remaining if name.startswith(stage)]
            await asyncio.gather(*(remaining.pop(name).stop() for name in together), return_exceptions=True)
