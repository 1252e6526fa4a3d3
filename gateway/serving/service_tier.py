"""Finds the class in which a request is served: its key's class, or a lower one that its `service_tier` names.

Of OpenAI's names, `flex` is offline, `priority` is interactive, and `auto` and `default` mean the key's class. A
response names its class if the request named one.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec.structs import replace

from contracts.errors import InvalidField
from contracts.service_class import ServiceClass
from gateway.limits.priorities import Priority
from gateway.wire.prepared import Prepared

ServiceTier: TypeAlias = Literal["default", "flex", "priority"]
TIERS: dict[ServiceClass, ServiceTier] = {
    ServiceClass.OFFLINE: "flex",
    ServiceClass.STANDARD: "default",
    ServiceClass.INTERACTIVE: "priority",
}


def in_class(prepared: Prepared, priority: Priority) -> Prepared:
    """The request with the priority of its class, and with the `service_tier` that its answer names.

    priority: its key's priority in its tier. Raises InvalidField for a class that the key does not have.
    """
    requested, generation = prepared.service_tier, prepared.generation
    service_class = service_class_of(requested, priority.service_class)
    if service_class.priority != generation.priority:
        prepared = replace(prepared, generation=replace(generation, priority=service_class.priority))
    return prepared if requested is None else replace(prepared, service_tier=TIERS[service_class])


def service_class_of(asked: str | None, own: ServiceClass) -> ServiceClass:
    """The request's class. asked: its `service_tier`. own: its key's class. Raises InvalidField."""
    if asked == TIERS[ServiceClass.OFFLINE]:
        return ServiceClass.OFFLINE
    if asked == TIERS[ServiceClass.INTERACTIVE] and own is not ServiceClass.INTERACTIVE:
        allowed = "auto, default, flex" if own is ServiceClass.STANDARD else "auto, default, flex (all are offline)"
        raise InvalidField(
            f"'service_tier' is 'priority', but the class of this API key is '{own}'. It may request: {allowed}.",
            param="service_tier",
        )
    return own
