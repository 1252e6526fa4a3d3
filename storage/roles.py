"""Roles and their permissions. This is the only definition; docs/reference/admin-roles.md is generated from it.

A role applies in the principal's own organization. A principal of the operating organization (`organizations.operator`)
has the permissions of its role in every organization, and only such a principal may use operations on the deployment as
a whole (endpoints with `operator_only=True`).
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Role of a member or service account in its organization."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    VIEWER = "viewer"
    BILLING = "billing"


class PrincipalKind(StrEnum):
    """Kind of an acting principal."""

    MEMBER = "member"
    SERVICE_ACCOUNT = "service_account"


class Permission(StrEnum):
    """One permission of a role. Every endpoint of the admin API names the one it needs."""

    ORGANIZATION_READ = "organization.read"
    ORGANIZATION_WRITE = "organization.write"
    PROJECTS_READ = "projects.read"
    PROJECTS_WRITE = "projects.write"
    MEMBERS_READ = "members.read"
    MEMBERS_WRITE = "members.write"
    KEYS_READ = "keys.read"
    KEYS_WRITE = "keys.write"
    ADMIN_KEYS_READ = "admin_keys.read"
    ADMIN_KEYS_WRITE = "admin_keys.write"
    LIMITS_READ = "limits.read"
    LIMITS_WRITE = "limits.write"
    USAGE_READ = "usage.read"
    REQUESTS_READ = "requests.read"
    PROMPTS_READ = "prompts.read"
    PRICES_READ = "prices.read"
    PRICES_WRITE = "prices.write"
    RECONCILIATION_READ = "reconciliation.read"
    WEBHOOKS_READ = "webhooks.read"
    WEBHOOKS_WRITE = "webhooks.write"
    AUDIT_READ = "audit.read"
    CHANGES_WRITE = "changes.write"
    FLEET_READ = "fleet.read"
    FLEET_WRITE = "fleet.write"
    REVIEWS_VOTE = "reviews.vote"
    EVALS_READ = "evals.read"
    EVALS_WRITE = "evals.write"
    RELEASES_READ = "releases.read"
    RELEASES_WRITE = "releases.write"


_EVERYBODY = frozenset({Permission.ORGANIZATION_READ, Permission.PROJECTS_READ, Permission.LIMITS_READ})
_VIEWER = _EVERYBODY | {
    Permission.MEMBERS_READ,
    Permission.KEYS_READ,
    Permission.USAGE_READ,
    Permission.REQUESTS_READ,
    Permission.PRICES_READ,
    Permission.FLEET_READ,
    Permission.EVALS_READ,
}
_DEVELOPER = _VIEWER | {Permission.KEYS_WRITE}
_BILLING = _EVERYBODY | {
    Permission.USAGE_READ,
    Permission.PRICES_READ,
    Permission.RECONCILIATION_READ,
    Permission.LIMITS_WRITE,
    Permission.WEBHOOKS_READ,
    Permission.WEBHOOKS_WRITE,
}
_ADMIN = (
    _DEVELOPER
    | _BILLING
    | {
        Permission.PROJECTS_WRITE,
        Permission.MEMBERS_WRITE,
        Permission.ADMIN_KEYS_READ,
        Permission.ADMIN_KEYS_WRITE,
        Permission.AUDIT_READ,
        Permission.PROMPTS_READ,
        Permission.CHANGES_WRITE,
        Permission.FLEET_WRITE,
        Permission.REVIEWS_VOTE,
        Permission.EVALS_WRITE,
        Permission.RELEASES_READ,
        Permission.RELEASES_WRITE,
    }
)

PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.OWNER: frozenset(Permission),
    Role.ADMIN: _ADMIN,
    Role.DEVELOPER: _DEVELOPER,
    Role.VIEWER: _VIEWER,
    Role.BILLING: _BILLING,
}


def covers(role: Role, other: Role) -> bool:
    """Whether `role` has all permissions of `other`: only then may it create, change or remove a principal with that
    role. Otherwise a key could be used to gain rights."""
    return PERMISSIONS[other] <= PERMISSIONS[role]
