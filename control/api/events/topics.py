"""Topics of changes, and the permissions for them."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from contracts.errors import PermissionDenied
from control.api.principal import Principal
from storage.roles import Permission as Can


class Topic(StrEnum):
    """Data that a page shows."""

    USAGE = "usage"
    REQUESTS = "requests"
    FLEET = "fleet"
    SLO = "slo"
    DIAGNOSIS = "diagnosis"
    PREFIXES = "prefixes"
    COMPLETIONS = "completions"
    RELEASES = "releases"
    EVALS = "evals"
    REVIEWS = "reviews"
    RECONCILIATIONS = "reconciliations"


class News(Struct, frozen=True):
    """A changed topic. organization_id: the organization whose data changed; None for the deployment's data, which only
    operators see."""

    topic: Topic
    organization_id: UUID | None = None

    def is_for(self, principal: Principal, topics: frozenset[Topic]) -> bool:
        """Whether the principal's stream of these topics is notified."""
        visible = principal.operator or self.organization_id == principal.organization_id
        return visible and self.topic in topics


PERMISSIONS: dict[Topic, Can] = {
    Topic.USAGE: Can.USAGE_READ,
    Topic.REQUESTS: Can.REQUESTS_READ,
    Topic.FLEET: Can.FLEET_READ,
    Topic.SLO: Can.USAGE_READ,
    Topic.DIAGNOSIS: Can.REQUESTS_READ,
    Topic.PREFIXES: Can.USAGE_READ,
    Topic.COMPLETIONS: Can.USAGE_READ,
    Topic.RELEASES: Can.RELEASES_READ,
    Topic.EVALS: Can.EVALS_READ,
    Topic.REVIEWS: Can.REVIEWS_VOTE,
    Topic.RECONCILIATIONS: Can.RECONCILIATION_READ,
}
"""Permission of the endpoints that return the topic's data."""
OF_TENANTS = frozenset({Topic.USAGE, Topic.REQUESTS, Topic.SLO, Topic.DIAGNOSIS, Topic.PREFIXES, Topic.COMPLETIONS})
"""Topics that tenants may subscribe to. The other topics concern the deployment."""


def require_topics(principal: Principal, topics: frozenset[Topic]) -> None:
    """Raises PermissionDenied, with the topic's name, unless the principal may subscribe to all of them."""
    for topic in sorted(topics):
        try:
            principal.require(PERMISSIONS[topic], operator_only=topic not in OF_TENANTS)
        except PermissionDenied as error:
            raise PermissionDenied(f"You may not subscribe to the topic '{topic}': {error.message}") from None
