"""Classes of service: the order of requests at a pool and at an engine that know priorities."""

from __future__ import annotations

from enum import StrEnum

from contracts.generation import BACKGROUND_PRIORITY


class ServiceClass(StrEnum):
    """From the one that yields to all others to the one that goes before them."""

    OFFLINE = "offline"
    """Batches that no client waits for: they get the capacity that the others leave, and are excluded from their
    promises."""
    STANDARD = "standard"
    INTERACTIVE = "interactive"

    @property
    def priority(self) -> int:
        """The priority in `LeaseRequest` and `Generation`."""
        return PRIORITIES[self]


PRIORITIES = {ServiceClass.OFFLINE: -10, ServiceClass.STANDARD: 0, ServiceClass.INTERACTIVE: 10}
"""SGLang preempts a running request for one that is more than 10 above it, by default: so of customers' requests only
interactive ones preempt there, and only offline ones. A step is worth `scheduler.ageing_s` of waiting in the embedded
engine."""
_NAMES = {priority: each.value for each, priority in PRIORITIES.items()} | {BACKGROUND_PRIORITY: "background"}


def yields(priority: int) -> bool:
    """No client waits for it: it may have the capacity that others leave."""
    return priority < PRIORITIES[ServiceClass.STANDARD]


def class_name(priority: int) -> str:
    """A priority's name; without a class, it is a number. `background` is the deployment's own work."""
    return _NAMES.get(priority) or str(priority)


def lowest(classes: tuple[ServiceClass, ...]) -> ServiceClass:
    """The class, of several, that yields to the others."""
    return min(classes, key=PRIORITIES.__getitem__)
