"""The admin API: which URL does what, and who Permission. Its services are in `resources`; a new one is a line here."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Router
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler

from gateway.admin.api import AdminApi
from gateway.admin.endpoint import Endpoint
from gateway.admin.operation import route
from gateway.admin.request import BoundedRequest, require_known_parameters, require_permission
from gateway.admin.resources import (
    admin_keys,
    audit_log,
    keys,
    limits,
    me,
    members,
    organizations,
    prices,
    projects,
    reconciliations,
    requests,
    service_accounts,
    usage,
    webhook_deliveries,
    webhooks,
)
from gateway.limits.levels import Level
from gateway.tenants.roles import Permission
from gateway.wire.config import RequestConfig

PREFIX = "/admin/v1"


class MeController(Controller):
    """Who asks."""

    tags = ("me",)
    get = route("GET", "/me", me.get_me, None)


class OrganizationController(Controller):
    """Whom the deployment serves."""

    tags = ("organizations",)
    list = route("GET", "/organizations", organizations.list_organizations, Permission.ORGANIZATION_READ)
    create = route(
        "POST", "/organizations", organizations.create_organization, Permission.ORGANIZATION_WRITE, deployment=True
    )
    get = route("GET", "/organizations/{organization_id}", organizations.get_organization, Permission.ORGANIZATION_READ)
    update = route(
        "PATCH", "/organizations/{organization_id}", organizations.update_organization, Permission.ORGANIZATION_WRITE
    )


class MemberController(Controller):
    """People with a role."""

    tags = ("members",)
    list = route("GET", "/organizations/{organization_id}/members", members.list_members, Permission.MEMBERS_READ)
    create = route("POST", "/organizations/{organization_id}/members", members.create_member, Permission.MEMBERS_WRITE)
    get = route("GET", "/members/{member_id}", members.get_member, Permission.MEMBERS_READ)
    update = route("PATCH", "/members/{member_id}", members.update_member, Permission.MEMBERS_WRITE)
    delete = route("DELETE", "/members/{member_id}", members.delete_member, Permission.MEMBERS_WRITE)


class ServiceAccountController(Controller):
    """Programs with a role."""

    tags = ("service_accounts",)
    list = route(
        "GET",
        "/organizations/{organization_id}/service-accounts",
        service_accounts.list_service_accounts,
        Permission.MEMBERS_READ,
    )
    create = route(
        "POST",
        "/organizations/{organization_id}/service-accounts",
        service_accounts.create_service_account,
        Permission.MEMBERS_WRITE,
    )
    get = route(
        "GET", "/service-accounts/{service_account_id}", service_accounts.get_service_account, Permission.MEMBERS_READ
    )
    update = route(
        "PATCH",
        "/service-accounts/{service_account_id}",
        service_accounts.update_service_account,
        Permission.MEMBERS_WRITE,
    )
    delete = route(
        "DELETE",
        "/service-accounts/{service_account_id}",
        service_accounts.delete_service_account,
        Permission.MEMBERS_WRITE,
    )


class AdminKeyController(Controller):
    """Keys of both."""

    tags = ("admin_keys",)
    list = route(
        "GET", "/organizations/{organization_id}/admin-keys", admin_keys.list_admin_keys, Permission.ADMIN_KEYS_READ
    )
    create = route(
        "POST", "/organizations/{organization_id}/admin-keys", admin_keys.create_admin_key, Permission.ADMIN_KEYS_WRITE
    )
    get = route("GET", "/admin-keys/{admin_key_id}", admin_keys.get_admin_key, Permission.ADMIN_KEYS_READ)
    rotate = route("POST", "/admin-keys/{admin_key_id}/rotate", admin_keys.rotate_admin_key, None)
    revoke = route(
        "POST",
        "/admin-keys/{admin_key_id}/revoke",
        admin_keys.revoke_admin_key,
        Permission.ADMIN_KEYS_WRITE,
        status=200,
    )


class ProjectController(Controller):
    """Parts of an organization."""

    tags = ("projects",)
    list = route("GET", "/organizations/{organization_id}/projects", projects.list_projects, Permission.PROJECTS_READ)
    create = route(
        "POST", "/organizations/{organization_id}/projects", projects.create_project, Permission.PROJECTS_WRITE
    )
    get = route("GET", "/projects/{project_id}", projects.get_project, Permission.PROJECTS_READ)
    update = route("PATCH", "/projects/{project_id}", projects.update_project, Permission.PROJECTS_WRITE)


class KeyController(Controller):
    """Inference keys."""

    tags = ("keys",)
    list = route("GET", "/projects/{project_id}/keys", keys.list_keys, Permission.KEYS_READ)
    create = route("POST", "/projects/{project_id}/keys", keys.create_key, Permission.KEYS_WRITE)
    get = route("GET", "/keys/{key_id}", keys.get_key, Permission.KEYS_READ)
    update = route("PATCH", "/keys/{key_id}", keys.update_key, Permission.KEYS_WRITE)
    rotate = route("POST", "/keys/{key_id}/rotate", keys.rotate_key, Permission.KEYS_WRITE)
    revoke = route("POST", "/keys/{key_id}/revoke", keys.revoke_key, Permission.KEYS_WRITE, status=200)


def limits_controller(level: Level, of: str, path: str, *, deployment: bool = False) -> type[Controller]:
    """Limits of one level. of: whose, in the documents; deployment: who runs it sets them."""
    fixed: dict[str, Any] = {"level": level, "of": of}
    write = {"deployment": deployment, **fixed}

    class LimitsController(Controller):
        """What is allowed, and what is left of it."""

        tags = ("limits",)
        get = route("GET", path, limits.get_limits, Permission.LIMITS_READ, name=f"get_{level}_limits", **fixed)
        get_counters = route(
            "GET",
            f"{path}/counters",
            limits.get_counters,
            Permission.LIMITS_READ,
            name=f"get_{level}_counters",
            **fixed,
        )
        put = route(
            "PUT",
            f"{path}/{{tier_name}}",
            limits.put_limits,
            Permission.LIMITS_WRITE,
            name=f"put_{level}_limits",
            **write,
        )
        delete = route(
            "DELETE",
            f"{path}/{{tier_name}}",
            limits.delete_limits,
            Permission.LIMITS_WRITE,
            name=f"delete_{level}_limits",
            **write,
        )

    return LimitsController


class RequestController(Controller):
    """Single requests, explained."""

    tags = ("requests",)
    list = route("GET", "/organizations/{organization_id}/requests", requests.list_requests, Permission.REQUESTS_READ)
    get = route("GET", "/requests/{request_id}", requests.get_request, Permission.REQUESTS_READ)


class WebhookController(Controller):
    """Where events are sent."""

    tags = ("webhooks",)
    list = route("GET", "/organizations/{organization_id}/webhooks", webhooks.list_webhooks, Permission.WEBHOOKS_READ)
    create = route(
        "POST", "/organizations/{organization_id}/webhooks", webhooks.create_webhook, Permission.WEBHOOKS_WRITE
    )
    get = route("GET", "/webhooks/{webhook_id}", webhooks.get_webhook, Permission.WEBHOOKS_READ)
    update = route("PATCH", "/webhooks/{webhook_id}", webhooks.update_webhook, Permission.WEBHOOKS_WRITE)
    delete = route("DELETE", "/webhooks/{webhook_id}", webhooks.delete_webhook, Permission.WEBHOOKS_WRITE)
    rotate_secret = route(
        "POST", "/webhooks/{webhook_id}/rotate-secret", webhooks.rotate_webhook_secret, Permission.WEBHOOKS_WRITE
    )
    test = route("POST", "/webhooks/{webhook_id}/test", webhooks.test_webhook, Permission.WEBHOOKS_WRITE)


class DeliveryController(Controller):
    """How sending them went."""

    tags = ("webhook_deliveries",)
    list = route(
        "GET", "/webhooks/{webhook_id}/deliveries", webhook_deliveries.list_deliveries, Permission.WEBHOOKS_READ
    )
    get = route("GET", "/deliveries/{delivery_id}", webhook_deliveries.get_delivery, Permission.WEBHOOKS_READ)
    retry = route(
        "POST",
        "/deliveries/{delivery_id}/retry",
        webhook_deliveries.retry_delivery,
        Permission.WEBHOOKS_WRITE,
        status=200,
    )


class AuditController(Controller):
    """Who changed what."""

    tags = ("audit_log",)
    list = route("GET", "/audit", audit_log.list_audit, Permission.AUDIT_READ)


class UsageController(Controller):
    """Totals, attempts and invoices."""

    tags = ("usage",)
    get_usage = route("GET", "/organizations/{organization_id}/usage", usage.get_usage, Permission.USAGE_READ)
    get_usage_of_all = route("GET", "/usage", usage.get_usage_of_all, Permission.USAGE_READ, deployment=True)
    list_events = route(
        "GET", "/organizations/{organization_id}/usage/events", usage.list_usage_events, Permission.USAGE_READ
    )
    get_invoice = route(
        "GET", "/organizations/{organization_id}/invoices/{month_name}", usage.get_invoice, Permission.USAGE_READ
    )


class PriceController(Controller):
    """What tokens cost."""

    tags = ("prices",)
    list = route("GET", "/prices", prices.list_prices, Permission.PRICES_READ)
    create = route("POST", "/prices", prices.create_price, Permission.PRICES_WRITE, deployment=True)
    update = route("PATCH", "/prices/{price_version}", prices.update_price, Permission.PRICES_WRITE, deployment=True)
    delete = route("DELETE", "/prices/{price_version}", prices.delete_price, Permission.PRICES_WRITE, deployment=True)


class ReconciliationController(Controller):
    """Whether engines, ledger and totals agree."""

    tags = ("reconciliations",)
    list = route(
        "GET", "/reconciliations", reconciliations.list_reconciliations, Permission.RECONCILIATION_READ, deployment=True
    )
    list_verifications = route(
        "GET",
        "/usage-verifications",
        reconciliations.list_usage_verifications,
        Permission.RECONCILIATION_READ,
        deployment=True,
    )


CONTROLLERS: tuple[type[Controller], ...] = (
    MeController,
    OrganizationController,
    MemberController,
    ServiceAccountController,
    AdminKeyController,
    ProjectController,
    KeyController,
    limits_controller(
        Level.ORGANIZATION, "an organization's", "/organizations/{organization_id}/limits", deployment=True
    ),
    limits_controller(Level.PROJECT, "a project's", "/projects/{project_id}/limits"),
    limits_controller(Level.KEY, "a key's own", "/keys/{key_id}/limits"),
    RequestController,
    WebhookController,
    DeliveryController,
    AuditController,
    UsageController,
    PriceController,
    ReconciliationController,
)
ENDPOINTS: tuple[Endpoint, ...] = tuple(
    handler.opt["endpoint"]
    for controller in CONTROLLERS
    for handler in vars(controller).values()
    if isinstance(handler, HTTPRouteHandler)
)


async def provide_admin(request: BoundedRequest) -> AdminApi:
    """For the handlers: what runs a service."""
    admin: AdminApi = request.app.state.services.admin
    return admin


def admin_operations(limits: RequestConfig) -> Router:
    """All operations, below /admin/v1. limits: what a body may hold, as of the inference endpoints."""
    return Router(
        path=PREFIX,
        route_handlers=CONTROLLERS,
        guards=[require_permission, require_known_parameters],
        dependencies={"admin": Provide(provide_admin)},
        request_class=BoundedRequest,
        opt={"body_limits": limits},
    )
