"""Service classes, which order requests in a pool and in engines that support priorities."""

from __future__ import annotations

from enum import StrEnum

from contracts.generation import BACKGROUND_PRIORITY


class ServiceClass(StrEnum):
    """From the one that yields to all others to the one that goes before them."""

    OFFLINE = "offline"
    """Batches that no client waits for. They get the capacity that other classes leave, and have no promise."""
    STANDARD = "standard"
    INTERACTIVE = "interactive"

    @property
    def priority(self) -> int:
        """The priority in `LeaseRequest` and `Generation`."""
        return PRIORITIES[self]


PRIORITIES = {ServiceClass.OFFLINE: -10, ServiceClass.STANDARD: 0, ServiceClass.INTERACTIVE: 10}
"""By default, SGLang preempts a running request for one whose priority is more than 10 higher. Of customers' requests,
only interactive ones can therefore preempt there, and only offline ones. In the embedded engine, a step of priority is
worth `scheduler.ageing_s` of waiting."""
_NAMES = {priority: each.value for each, priority in PRIORITIES.items()} | {BACKGROUND_PRIORITY: "background"}


def yields(priority: int) -> bool:
    """Whether requests of this priority get only the capacity that others leave, because no client waits for them."""
    return priority < PRIORITIES[ServiceClass.STANDARD]


def class_name(priority: int) -> str:
    """The name of a priority's class, or the number if it has none. `background` is the deployment's own work."""
    return _NAMES.get(priority) or str(priority)


def lowest(classes: tuple[ServiceClass, ...]) -> ServiceClass:
    """The class that yields to the other given classes."""
    return min(classes, key=PRIORITIES.__getitem__)
