"""The LoRA adapters that a replica holds, as far as the router knows: those loaded for its own leases since its engine
was last known to be dead.
"""

from __future__ import annotations

import msgspec

from router.core.adapter_places import Eviction, PlacedAdapter, evicted_for


class _Held(msgspec.Struct):
    organization_id: str
    used_at: float
    loaded: bool = False
    """The adapter is known to be loaded."""
    running: int = 0
    """Leases with the adapter."""


class HeldAdapters:
    """The adapters of one replica. An adapter takes a slot from the grant that has it loaded. Times: monotonic
    seconds."""

    def __init__(self) -> None:
        self.most = 0
        """Adapter slots, set by its pool; 0: it takes no adapters."""
        self.recent_s = 0.0
        """See `RouterConfig.adapter_recent_s`."""
        self.used = False
        """A request has used an adapter since the engine was last known to be dead: its cache may hold blocks computed
        with one."""
        self._held: dict[str, _Held] = {}
        """Ordered by last use, the newest last."""

    @property
    def names(self) -> tuple[str, ...]:
        """Adapters known to be loaded."""
        return tuple(name for name, held in self._held.items() if held.loaded)

    def loaded(self, name: str) -> bool:
        """The adapter need not be loaded first."""
        held = self._held.get(name)
        return held is not None and held.loaded

    def admits(self, name: str, organization_id: str, now: float) -> bool:
        """The adapter is loaded, or has a free slot, or another one gives up its slot."""
        if name in self._held or len(self._held) < self.most:
            return True
        return self.most > 0 and self._evicted(organization_id, now) is not None

    def take(self, name: str, organization_id: str, now: float) -> Eviction | None:
        """A lease begins. Returns the adapter to unload for it; None: none. The adapter must be admitted."""
        evicted = None
        if name not in self._held and len(self._held) >= self.most:
            evicted = self._evicted(organization_id, now)
            if evicted is not None:
                del self._held[evicted.name]
        held = self._held[name] = self._held.pop(name, _Held(organization_id, now))
        held.running += 1
        held.used_at = now
        self.used = True
        return evicted

    def began(self, name: str) -> None:
        """The engine has begun to answer with the adapter."""
        if name in self._held:
            self._held[name].loaded = True

    def give(self, name: str, now: float) -> None:
        """A lease has ended. An adapter that was never seen loaded gives up its slot with its last lease."""
        held = self._held[name]
        held.running -= 1
        held.used_at = now
        if not held.running and not held.loaded:
            del self._held[name]

    def missing(self, name: str) -> None:
        """The engine turned out not to hold the adapter."""
        if name in self._held:
            self._held[name].loaded = False

    def forget(self) -> None:
        """The engine has restarted: adapters of its leases have to be loaded again."""
        self._held = {name: held for name, held in self._held.items() if held.running}
        for held in self._held.values():
            held.loaded = False
        self.used = bool(self._held)

    def _evicted(self, organization_id: str, now: float) -> Eviction | None:
        held = [
            PlacedAdapter(name, one.organization_id, one.running > 0, one.used_at) for name, one in self._held.items()
        ]
        return evicted_for(organization_id, held, self.most, now, self.recent_s)
