"""Service accounts: programs with a role in an organization. They act with admin keys."""

from __future__ import annotations

from uuid import UUID

from control.api.call import AdminCall
from control.api.schemas import Body, Deleted, Name, Page
from control.tenants.principals import Holder, HolderQuery, PrincipalChanges, PrincipalResource
from storage.roles import PrincipalKind, Role
from storage.rows import equal
from storage.tables.tenants import principals


class ServiceAccount(Holder, frozen=True, kw_only=True):
    """A service account. disabled_at: the time since which its admin keys are refused; null while it is enabled."""


SERVICE_ACCOUNTS = PrincipalResource.of(PrincipalKind.SERVICE_ACCOUNT, ServiceAccount)


class NewServiceAccount(Body, frozen=True, kw_only=True):
    """name: unique among the organization's service accounts."""

    name: Name
    role: Role


class ServiceAccountChanges(PrincipalChanges, frozen=True, kw_only=True):
    """What to change; what is left out stays."""


class ServiceAccountQuery(HolderQuery, frozen=True, kw_only=True):
    """Filters."""

    name: Name | None = None


async def list_service_accounts(
    call: AdminCall, organization_id: UUID, query: ServiceAccountQuery
) -> Page[ServiceAccount]:
    """List an organization's service accounts, newest first."""
    return await SERVICE_ACCOUNTS.list_of(call, organization_id, query, equal(principals.c.name, query.name))


async def create_service_account(call: AdminCall, organization_id: UUID, body: NewServiceAccount) -> ServiceAccount:
    """Add a service account. Its role must not allow more than the caller's own role."""
    return await SERVICE_ACCOUNTS.add(call, organization_id, body.role, body)


async def get_service_account(call: AdminCall, service_account_id: UUID) -> ServiceAccount:
    """Get a service account."""
    return await SERVICE_ACCOUNTS.find(call, service_account_id)


async def update_service_account(
    call: AdminCall, service_account_id: UUID, body: ServiceAccountChanges
) -> ServiceAccount:
    """Rename a service account, change its role, or disable or enable it."""
    return await SERVICE_ACCOUNTS.change(call, service_account_id, body)


async def delete_service_account(call: AdminCall, service_account_id: UUID) -> Deleted:
    """Remove a service account and all its admin keys."""
    return await SERVICE_ACCOUNTS.remove(call, service_account_id)
