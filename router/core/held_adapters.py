"""Which LoRA adapters a replica holds, as far as the router knows: what was loaded for its own leases, since its engine
was last known to be dead."""

from __future__ import annotations

import msgspec

from router.core.adapter_places import Eviction, PlacedAdapter, evicted_for


class _Held(msgspec.Struct):
    organization_id: str
    used_at: float
    loaded: bool = False
    """It is known to be."""
    running: int = 0
    """Leases with it."""


class HeldAdapters:
    """One replica's. An adapter takes a place from the grant that has it loaded. Times: monotonic seconds."""

    def __init__(self) -> None:
        self.most = 0
        """Of its pool; 0: it takes none."""
        self.recent_s = 0.0
        """As `RouterConfig.adapter_recent_s`."""
        self.used = False
        """A request has had one since the engine was last known to be dead: its cache may hold what one computed."""
        self._held: dict[str, _Held] = {}
        """The one used last is the last."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are known to be loaded."""
        return tuple(name for name, held in self._held.items() if held.loaded)

    def loaded(self, name: str) -> bool:
        """It need not be loaded first."""
        held = self._held.get(name)
        return held is not None and held.loaded

    def admits(self, name: str, organization_id: str, now: float) -> bool:
        """It is there, or there is a place for it, or another one gives up its place."""
        if name in self._held or len(self._held) < self.most:
            return True
        return self.most > 0 and self._evicted(organization_id, now) is not None

    def take(self, name: str, organization_id: str, now: float) -> Eviction | None:
        """A lease begins. Returns what is to be unloaded for it; None: nothing. It must be admitted."""
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
        """The engine has begun to answer with it."""
        if name in self._held:
            self._held[name].loaded = True

    def give(self, name: str, now: float) -> None:
        """A lease has ended. What was never seen to be loaded leaves its place with the last lease."""
        held = self._held[name]
        held.running -= 1
        held.used_at = now
        if not held.running and not held.loaded:
            del self._held[name]

    def missing(self, name: str) -> None:
        """The engine does not hold it after all."""
        if name in self._held:
            self._held[name].loaded = False

    def forget(self) -> None:
        """The engine begins anew: what its leases need has to be loaded again."""
        self._held = {name: held for name, held in self._held.items() if held.running}
        for held in self._held.values():
            held.loaded = False
        self.used = bool(self._held)

    def _evicted(self, organization_id: str, now: float) -> Eviction | None:
        held = [
            PlacedAdapter(name, one.organization_id, one.running > 0, one.used_at) for name, one in self._held.items()
        ]
        return evicted_for(organization_id, held, self.most, now, self.recent_s)
