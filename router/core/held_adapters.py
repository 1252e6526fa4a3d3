"""The LoRA adapters that a replica holds as far as the router knows: the adapters that were loaded for its leases since
its engine was last known to be dead."""

from __future__ import annotations

import msgspec

from router.core.adapter_places import Eviction, PlacedAdapter, evicted_for


class _Held(msgspec.Struct):
    organization_id: str
    used_at: float
    loaded: bool = False
    """Whether the adapter is known to be loaded."""
    running: int = 0
    """Number of leases with the adapter."""


class HeldAdapters:
    """The adapters of one replica, which hold a slot from the grant that has them loaded. Times: monotonic seconds."""

    def __init__(self) -> None:
        self.most = 0
        """Number of adapter slots, which the pool sets; 0 if the replica takes no adapters."""
        self.recent_s = 0.0
        """See `RouterConfig.adapter_recent_s`."""
        self.used = False
        """Whether a request has used an adapter since the engine was last known to be dead, so that its cache may hold
        blocks that were computed with one."""
        self._held: dict[str, _Held] = {}
        """The adapters in the order of their last use, the most recent last."""

    @property
    def names(self) -> tuple[str, ...]:
        """Adapters known to be loaded."""
        return tuple(name for name, held in self._held.items() if held.loaded)

    def loaded(self, name: str) -> bool:
        """Whether the adapter is known to be loaded."""
        held = self._held.get(name)
        return held is not None and held.loaded

    def admits(self, name: str, organization_id: str, now: float) -> bool:
        """Whether the adapter has a slot, or a slot is free, or another adapter can give up its slot."""
        if name in self._held or len(self._held) < self.most:
            return True
        return self.most > 0 and self._evicted(organization_id, now) is not None

    def take(self, name: str, organization_id: str, now: float) -> Eviction | None:
        """Note the start of a lease with an admitted adapter. Returns the adapter to unload for it, or None."""
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
        """Note that the engine has begun to respond with the adapter."""
        if name in self._held:
            self._held[name].loaded = True

    def give(self, name: str, now: float) -> None:
        """Note the end of a lease. An adapter that was never seen loaded gives up its slot with its last lease."""
        held = self._held[name]
        held.running -= 1
        held.used_at = now
        if not held.running and not held.loaded:
            del self._held[name]

    def missing(self, name: str) -> None:
        """Note that the engine does not hold the adapter."""
        if name in self._held:
            self._held[name].loaded = False

    def forget(self) -> None:
        """Note that the engine has restarted, so that the adapters of its leases have to be loaded again."""
        self._held = {name: held for name, held in self._held.items() if held.running}
        for held in self._held.values():
            held.loaded = False
        self.used = bool(self._held)

    def _evicted(self, organization_id: str, now: float) -> Eviction | None:
        placed = [
            PlacedAdapter(name, held.organization_id, held.running > 0, held.used_at)
            for name, held in self._held.items()
        ]
        return evicted_for(organization_id, placed, self.most, now, self.recent_s)
