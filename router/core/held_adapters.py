"""Which LoRA adapters a replica holds, as far as the router knows: what was loaded for its own leases, since its engine
was last known to be dead."""

from __future__ import annotations

from collections import Counter


class HeldAdapters:
    """One replica's. An adapter takes a place from the grant that has it loaded."""

    def __init__(self) -> None:
        self.most = 0
        """Of its pool; 0: it takes none."""
        self._held: dict[str, bool] = {}
        """Whether it is known to be loaded; the one used last is the last."""
        self._running: Counter[str] = Counter()
        """Leases with each."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are known to be loaded."""
        return tuple(name for name, loaded in self._held.items() if loaded)

    def loaded(self, name: str) -> bool:
        """It need not be loaded first."""
        return self._held.get(name, False)

    def admits(self, name: str) -> bool:
        """It is there, or there is a place for it, or one that nobody uses gives its place."""
        return name in self._held or len(self._held) < self.most or (self.most > 0 and bool(self._unused()))

    def take(self, name: str) -> str:
        """A lease begins. Returns which one is to be unloaded for it: of those that no lease has, the one that was used
        longest ago; empty: none."""
        evicted = ""
        if name not in self._held and len(self._held) >= self.most:
            evicted = self._unused()
            self._held.pop(evicted, None)
        self._held[name] = self._held.pop(name, False)
        self._running[name] += 1
        return evicted

    def began(self, name: str) -> None:
        """The engine has begun to answer with it."""
        if name in self._held:
            self._held[name] = True

    def give(self, name: str) -> None:
        """A lease has ended. What was never seen to be loaded leaves its place with the last lease."""
        self._running[name] -= 1
        if self._running[name] <= 0:
            del self._running[name]
            if not self._held.get(name, True):
                del self._held[name]

    def missing(self, name: str) -> None:
        """The engine does not hold it after all."""
        if name in self._held:
            self._held[name] = False

    def forget(self) -> None:
        """The engine begins anew: what its leases need has to be loaded again."""
        self._held = dict.fromkeys((name for name in self._held if self._running[name]), False)

    def _unused(self) -> str:
        return next((name for name in self._held if not self._running[name]), "")
