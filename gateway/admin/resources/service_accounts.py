"""Service accounts: programs with a role in an organization. They act by admin keys of their own."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from gateway.admin.bodies import Body, Deleted, Name, Page, PageQuery
from gateway.admin.call import AdminCall
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of
from gateway.admin.principals import (
    SELECT,
    PrincipalChanges,
    change_principal,
    delete_principal,
    find_principal,
    insert_principal,
)
from gateway.tenants.roles import Permission, PrincipalKind, Role

KIND = PrincipalKind.SERVICE_ACCOUNT


class ServiceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A service account. disabled_at: since when its admin keys are refused."""

    id: UUID
    organization_id: UUID
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


class NewServiceAccount(Body, frozen=True, kw_only=True):
    """name: unique among the organization's service accounts."""

    name: Name
    role: Role


class ServiceAccountChanges(PrincipalChanges, frozen=True, kw_only=True):
    """What to change; what is left out stays."""


class ServiceAccountQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    role: Role | None = None
    name: Name | None = None
    disabled: bool | None = None


@endpoint("GET", "/organizations/{organization_id}/service-accounts", Permission.MEMBERS_READ)
async def list_service_accounts(
    call: AdminCall, organization_id: UUID, query: ServiceAccountQuery
) -> Page[ServiceAccount]:
    """List an organization's service accounts, newest first."""
    await call.require_organization(organization_id)
    where = call.where()
    where.add("organization_id = {}", organization_id)
    where.add("kind = {}", KIND.value)
    where.add_if("role = {}", query.role and query.role.value)
    where.add_if("name = {}", query.name)
    where.add_if("(disabled_at IS NOT NULL) = {}", query.disabled)
    return await page_of(call.connection, ServiceAccount, SELECT, where, query, table="principals")


@endpoint("POST", "/organizations/{organization_id}/service-accounts", Permission.MEMBERS_WRITE)
async def create_service_account(call: AdminCall, organization_id: UUID, body: NewServiceAccount) -> ServiceAccount:
    """Add a service account. Nobody can give a role that may do more than their own."""
    row = await insert_principal(call, organization_id, KIND, None, body.name, body.role)
    account = msgspec.convert(row, ServiceAccount)
    call.audit("service_account.create", account.id, organization_id=organization_id, after=account)
    return account


@endpoint("GET", "/service-accounts/{service_account_id}", Permission.MEMBERS_READ)
async def get_service_account(call: AdminCall, service_account_id: UUID) -> ServiceAccount:
    """One service account."""
    return msgspec.convert(await find_principal(call, service_account_id, KIND), ServiceAccount)


@endpoint("PATCH", "/service-accounts/{service_account_id}", Permission.MEMBERS_WRITE)
async def update_service_account(
    call: AdminCall, service_account_id: UUID, body: ServiceAccountChanges
) -> ServiceAccount:
    """Change a service account's name or role, disable or enable it."""
    row = await find_principal(call, service_account_id, KIND, for_update=True)
    before = msgspec.convert(row, ServiceAccount)
    changed = await change_principal(call, row, body)
    after = msgspec.convert(changed, ServiceAccount)
    call.audit("service_account.update", after.id, organization_id=after.organization_id, before=before, after=after)
    return after


@endpoint("DELETE", "/service-accounts/{service_account_id}", Permission.MEMBERS_WRITE)
async def delete_service_account(call: AdminCall, service_account_id: UUID) -> Deleted:
    """Remove a service account and all its admin keys."""
    row = await find_principal(call, service_account_id, KIND, for_update=True)
    await delete_principal(call, row)
    account = msgspec.convert(row, ServiceAccount)
    call.audit("service_account.delete", service_account_id, organization_id=account.organization_id, before=account)
    return Deleted(id=service_account_id)


ENDPOINTS = (
    list_service_accounts,
    create_service_account,
    get_service_account,
    update_service_account,
    delete_service_account,
)
