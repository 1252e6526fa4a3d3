"""The admin API: which URL does what, and who Can. Its services are in `resources`; a new one is a line here."""

from __future__ import annotations

from functools import partial

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
    requests,
    usage,
    webhooks,
)
from gateway.admin.resources import reconciliations as checks
from gateway.admin.resources import service_accounts as accounts
from gateway.admin.resources import webhook_deliveries as deliveries
from gateway.limits.levels import Level
from gateway.tenants.roles import Permission as Can
from gateway.wire.config import RequestConfig

PREFIX = "/admin/v1"
OF_ORGANIZATION = "/organizations/{organization_id}"


class MeController(Controller):
    """Who asks."""

    tags = ("me",)
    get = route("GET", "/me", me.get_me, None)


class OrganizationController(Controller):
    """Whom the deployment serves."""

    tags = ("organizations",)
    list = route("GET", "/organizations", organizations.list_organizations, Can.ORGANIZATION_READ)
    create = route("POST", "/organizations", organizations.create_organization, Can.ORGANIZATION_WRITE, deployment=True)
    get = route("GET", "/organizations/{organization_id}", organizations.get_organization, Can.ORGANIZATION_READ)
    update = route(
        "PATCH", "/organizations/{organization_id}", organizations.update_organization, Can.ORGANIZATION_WRITE
    )


class MemberController(Controller):
    """People with a role."""

    tags = ("members",)
    list = route("GET", f"{OF_ORGANIZATION}/members", members.list_members, Can.MEMBERS_READ)
    create = route("POST", f"{OF_ORGANIZATION}/members", members.create_member, Can.MEMBERS_WRITE)
    get = route("GET", "/members/{member_id}", members.get_member, Can.MEMBERS_READ)
    update = route("PATCH", "/members/{member_id}", members.update_member, Can.MEMBERS_WRITE)
    delete = route("DELETE", "/members/{member_id}", members.delete_member, Can.MEMBERS_WRITE)


class ServiceAccountController(Controller):
    """Programs with a role."""

    tags = ("service_accounts",)
    list = route("GET", f"{OF_ORGANIZATION}/service-accounts", accounts.list_service_accounts, Can.MEMBERS_READ)
    create = route("POST", f"{OF_ORGANIZATION}/service-accounts", accounts.create_service_account, Can.MEMBERS_WRITE)
    get = route("GET", "/service-accounts/{service_account_id}", accounts.get_service_account, Can.MEMBERS_READ)
    update = route(
        "PATCH", "/service-accounts/{service_account_id}", accounts.update_service_account, Can.MEMBERS_WRITE
    )
    delete = route(
        "DELETE", "/service-accounts/{service_account_id}", accounts.delete_service_account, Can.MEMBERS_WRITE
    )


class AdminKeyController(Controller):
    """Keys of both."""

    tags = ("admin_keys",)
    list = route("GET", f"{OF_ORGANIZATION}/admin-keys", admin_keys.list_admin_keys, Can.ADMIN_KEYS_READ)
    create = route("POST", f"{OF_ORGANIZATION}/admin-keys", admin_keys.create_admin_key, Can.ADMIN_KEYS_WRITE)
    get = route("GET", "/admin-keys/{admin_key_id}", admin_keys.get_admin_key, Can.ADMIN_KEYS_READ)
    rotate = route("POST", "/admin-keys/{admin_key_id}/rotate", admin_keys.rotate_admin_key, None)
    revoke = route(
        "POST", "/admin-keys/{admin_key_id}/revoke", admin_keys.revoke_admin_key, Can.ADMIN_KEYS_WRITE, status=200
    )


class ProjectController(Controller):
    """Parts of an organization."""

    tags = ("projects",)
    list = route("GET", f"{OF_ORGANIZATION}/projects", projects.list_projects, Can.PROJECTS_READ)
    create = route("POST", f"{OF_ORGANIZATION}/projects", projects.create_project, Can.PROJECTS_WRITE)
    get = route("GET", "/projects/{project_id}", projects.get_project, Can.PROJECTS_READ)
    update = route("PATCH", "/projects/{project_id}", projects.update_project, Can.PROJECTS_WRITE)


class KeyController(Controller):
    """Inference keys."""

    tags = ("keys",)
    list = route("GET", "/projects/{project_id}/keys", keys.list_keys, Can.KEYS_READ)
    create = route("POST", "/projects/{project_id}/keys", keys.create_key, Can.KEYS_WRITE)
    get = route("GET", "/keys/{key_id}", keys.get_key, Can.KEYS_READ)
    update = route("PATCH", "/keys/{key_id}", keys.update_key, Can.KEYS_WRITE)
    rotate = route("POST", "/keys/{key_id}/rotate", keys.rotate_key, Can.KEYS_WRITE)
    revoke = route("POST", "/keys/{key_id}/revoke", keys.revoke_key, Can.KEYS_WRITE, status=200)


def limits_controller(level: Level, path: str, of: str, *, deployment: bool = False) -> type[Controller]:
    """Limits of one level. of: whose, in the documents; deployment: who runs it sets them."""
    tier = f"{path}/{{tier_name}}"
    read = partial(route, "GET", permission=Can.LIMITS_READ, level=level, of=of)
    write = partial(route, permission=Can.LIMITS_WRITE, deployment=deployment, level=level, of=of)

    class LimitsController(Controller):
        """What is allowed, and what is left of it."""

        tags = ("limits",)
        get = read(path, limits.get_limits)
        get_counters = read(f"{path}/counters", limits.get_counters)
        put = write("PUT", tier, limits.put_limits)
        delete = write("DELETE", tier, limits.delete_limits)

    return LimitsController


class RequestController(Controller):
    """Single requests, explained."""

    tags = ("requests",)
    list = route("GET", f"{OF_ORGANIZATION}/requests", requests.list_requests, Can.REQUESTS_READ)
    get = route("GET", "/requests/{request_id}", requests.get_request, Can.REQUESTS_READ)


class WebhookController(Controller):
    """Where events are sent."""

    tags = ("webhooks",)
    list = route("GET", f"{OF_ORGANIZATION}/webhooks", webhooks.list_webhooks, Can.WEBHOOKS_READ)
    create = route("POST", f"{OF_ORGANIZATION}/webhooks", webhooks.create_webhook, Can.WEBHOOKS_WRITE)
    get = route("GET", "/webhooks/{webhook_id}", webhooks.get_webhook, Can.WEBHOOKS_READ)
    update = route("PATCH", "/webhooks/{webhook_id}", webhooks.update_webhook, Can.WEBHOOKS_WRITE)
    delete = route("DELETE", "/webhooks/{webhook_id}", webhooks.delete_webhook, Can.WEBHOOKS_WRITE)
    rotate_secret = route(
        "POST", "/webhooks/{webhook_id}/rotate-secret", webhooks.rotate_webhook_secret, Can.WEBHOOKS_WRITE
    )
    test = route("POST", "/webhooks/{webhook_id}/test", webhooks.test_webhook, Can.WEBHOOKS_WRITE)


class DeliveryController(Controller):
    """How sending them went."""

    tags = ("webhook_deliveries",)
    list = route("GET", "/webhooks/{webhook_id}/deliveries", deliveries.list_deliveries, Can.WEBHOOKS_READ)
    get = route("GET", "/deliveries/{delivery_id}", deliveries.get_delivery, Can.WEBHOOKS_READ)
    retry = route("POST", "/deliveries/{delivery_id}/retry", deliveries.retry_delivery, Can.WEBHOOKS_WRITE, status=200)


class AuditController(Controller):
    """Who changed what."""

    tags = ("audit_log",)
    list = route("GET", "/audit", audit_log.list_audit, Can.AUDIT_READ)


class UsageController(Controller):
    """Totals, attempts and invoices."""

    tags = ("usage",)
    get_usage = route("GET", f"{OF_ORGANIZATION}/usage", usage.get_usage, Can.USAGE_READ)
    get_usage_of_all = route("GET", "/usage", usage.get_usage_of_all, Can.USAGE_READ, deployment=True)
    list_events = route("GET", f"{OF_ORGANIZATION}/usage/events", usage.list_usage_events, Can.USAGE_READ)
    get_invoice = route("GET", f"{OF_ORGANIZATION}/invoices/{{month_name}}", usage.get_invoice, Can.USAGE_READ)


class PriceController(Controller):
    """What tokens cost."""

    tags = ("prices",)
    list = route("GET", "/prices", prices.list_prices, Can.PRICES_READ)
    create = route("POST", "/prices", prices.create_price, Can.PRICES_WRITE, deployment=True)
    update = route("PATCH", "/prices/{price_version}", prices.update_price, Can.PRICES_WRITE, deployment=True)
    delete = route("DELETE", "/prices/{price_version}", prices.delete_price, Can.PRICES_WRITE, deployment=True)


class ReconciliationController(Controller):
    """Whether engines, ledger and totals agree."""

    tags = ("reconciliations",)
    list = route("GET", "/reconciliations", checks.list_reconciliations, Can.RECONCILIATION_READ, deployment=True)
    list_verifications = route(
        "GET", "/usage-verifications", checks.list_usage_verifications, Can.RECONCILIATION_READ, deployment=True
    )


CONTROLLERS: tuple[type[Controller], ...] = (
    MeController,
    OrganizationController,
    MemberController,
    ServiceAccountController,
    AdminKeyController,
    ProjectController,
    KeyController,
    limits_controller(Level.ORGANIZATION, f"{OF_ORGANIZATION}/limits", "an organization's", deployment=True),
    limits_controller(Level.PROJECT, "/projects/{project_id}/limits", "a project's"),
    limits_controller(Level.KEY, "/keys/{key_id}/limits", "a key's own"),
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
