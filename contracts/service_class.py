"""Classes of service: who goes first at a pool and at an engine that know priorities."""

from __future__ import annotations

from enum import StrEnum

from contracts.generation import BACKGROUND_PRIORITY


class ServiceClass(StrEnum):
    """From the one that yields to all others to the one that goes before them."""

    OFFLINE = "offline"
    """Batches that nobody waits for: gets what the others leave over, and is in nothing that they are promised."""
    STANDARD = "standard"
    INTERACTIVE = "interactive"

    @property
    def priority(self) -> int:
        """As of `LeaseRequest` and `Generation`."""
        return PRIORITIES[self]


PRIORITIES = {ServiceClass.OFFLINE: -10, ServiceClass.STANDARD: 0, ServiceClass.INTERACTIVE: 10}
"""SGLang interrupts what runs for what is more than 10 above it, unless told otherwise: so of customers' requests
interactive ones alone interrupt others there, offline ones. A step is worth `scheduler.ageing_s` of waiting in the
embedded engine."""
_NAMES = {priority: each.value for each, priority in PRIORITIES.items()} | {BACKGROUND_PRIORITY: "background"}


def yields(priority: int) -> bool:
    """Nobody waits for it: it may have what others leave over."""
    return priority < PRIORITIES[ServiceClass.STANDARD]


def class_name(priority: int) -> str:
    """A priority as people know it; that of no class is a number. `background` is the deployment's own work."""
    return _NAMES.get(priority) or str(priority)


def lowest(classes: tuple[ServiceClass, ...]) -> ServiceClass:
    """Of several, the one that yields to the others."""
    return min(classes, key=PRIORITIES.__getitem__)
