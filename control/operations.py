"""The operations of the admin API, with their URLs and permissions. A new operation is a line here and a function of
its domain."""

from __future__ import annotations

from litestar import Router
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler

from control.api.api import AdminApi
from control.api.events.route import events_route
from control.api.operation import Operation, ask, delete, get, patch, post, put, report
from control.api.request import BoundedRequest, require_known_parameters, require_permission
from control.api.route_handlers import controller
from control.audit import audit_log
from control.billing import good_tokens, prices, usage
from control.billing import reconciliations as checks
from control.cascades import cascades
from control.completions import autocomplete, completion_texts
from control.console import console_links
from control.diagnosis import changes, diagnosis
from control.eval_runs import eval_nights
from control.evals import eval_scores, eval_slices, evals
from control.fleet import fleet, models, pools
from control.prefixes import prefixes
from control.releases import release_evidence, releases
from control.requests import requests, session
from control.shadow import reviews, shadow
from control.slo import serving, slo
from control.tenants import (
    adapters,
    admin_keys,
    keys,
    limits,
    limits_preview,
    limits_within,
    me,
    members,
    organizations,
    priorities,
    projects,
)
from control.tenants import service_accounts as accounts
from control.webhooks import webhook_deliveries as deliveries
from control.webhooks import webhooks
from gateway.wire.config import RequestConfig
from storage.roles import Permission as Can

PREFIX = "/admin/v1"


CONTROLLERS = (
    controller("/me", get(me.get_me, None)),
    controller(
        "/organizations",
        get(organizations.list_organizations, Can.ORGANIZATION_READ),
        post(organizations.create_organization, Can.ORGANIZATION_WRITE, operator_only=True),
        get(organizations.get_organization, Can.ORGANIZATION_READ, "/{organization_id}"),
        patch(organizations.update_organization, Can.ORGANIZATION_WRITE, "/{organization_id}"),
    ),
    controller(
        "/organizations/{organization_id}/members",
        get(members.list_members, Can.MEMBERS_READ),
        post(members.create_member, Can.MEMBERS_WRITE),
    ),
    controller(
        "/members/{member_id}",
        get(members.get_member, Can.MEMBERS_READ),
        patch(members.update_member, Can.MEMBERS_WRITE),
        delete(members.delete_member, Can.MEMBERS_WRITE),
        post(console_links.create_console_link, Can.MEMBERS_WRITE, "/console-link"),
    ),
    controller(
        "/organizations/{organization_id}/service-accounts",
        get(accounts.list_service_accounts, Can.MEMBERS_READ),
        post(accounts.create_service_account, Can.MEMBERS_WRITE),
    ),
    controller(
        "/service-accounts/{service_account_id}",
        get(accounts.get_service_account, Can.MEMBERS_READ),
        patch(accounts.update_service_account, Can.MEMBERS_WRITE),
        delete(accounts.delete_service_account, Can.MEMBERS_WRITE),
    ),
    controller(
        "/organizations/{organization_id}/admin-keys",
        get(admin_keys.list_admin_keys, Can.ADMIN_KEYS_READ),
        post(admin_keys.create_admin_key, Can.ADMIN_KEYS_WRITE),
    ),
    controller(
        "/admin-keys/{admin_key_id}",
        get(admin_keys.get_admin_key, Can.ADMIN_KEYS_READ),
        post(admin_keys.rotate_admin_key, None, "/rotate"),
        post(admin_keys.revoke_admin_key, Can.ADMIN_KEYS_WRITE, "/revoke", status=200),
    ),
    controller(
        "/organizations/{organization_id}/projects",
        get(projects.list_projects, Can.PROJECTS_READ),
        post(projects.create_project, Can.PROJECTS_WRITE),
    ),
    controller(
        "/projects/{project_id}",
        get(projects.get_project, Can.PROJECTS_READ),
        patch(projects.update_project, Can.PROJECTS_WRITE),
    ),
    controller(
        "/projects/{project_id}/keys",
        get(keys.list_keys, Can.KEYS_READ),
        post(keys.create_key, Can.KEYS_WRITE),
    ),
    controller(
        "/keys/{key_id}",
        get(keys.get_key, Can.KEYS_READ),
        patch(keys.update_key, Can.KEYS_WRITE),
        post(keys.rotate_key, Can.KEYS_WRITE, "/rotate"),
        post(keys.revoke_key, Can.KEYS_WRITE, "/revoke", status=200),
    ),
    controller(
        "/organizations/{organization_id}/adapters",
        get(adapters.list_adapters, Can.PROJECTS_READ),
        post(adapters.create_adapter, Can.FLEET_WRITE, operator_only=True),
    ),
    controller(
        "/adapters/{adapter_id}",
        get(adapters.get_adapter, Can.PROJECTS_READ),
        delete(adapters.delete_adapter, Can.FLEET_WRITE, operator_only=True),
    ),
    controller(
        "/organizations/{organization_id}/limits/within", report(limits_within.list_limits_within, Can.LIMITS_READ)
    ),
    controller(
        "/organizations/{organization_id}/limits/preview", report(limits_preview.get_preview, Can.REQUESTS_READ)
    ),
    controller(
        "/limits/{level}/{subject_id}",
        get(limits.get_limits, Can.LIMITS_READ),
        get(limits.get_counters, Can.LIMITS_READ, "/counters"),
        put(limits.put_limits, Can.LIMITS_WRITE, "/{tier_name}"),
        delete(limits.delete_limits, Can.LIMITS_WRITE, "/{tier_name}"),
    ),
    controller(
        "/priorities/{level}/{subject_id}",
        get(priorities.get_priorities, Can.LIMITS_READ),
        put(priorities.put_priorities, Can.LIMITS_WRITE, "/{tier_name}"),
        delete(priorities.delete_priorities, Can.LIMITS_WRITE, "/{tier_name}"),
    ),
    controller("/organizations/{organization_id}/requests", report(requests.list_requests, Can.REQUESTS_READ)),
    controller(
        "/organizations/{organization_id}/sessions/{session_name}", report(session.get_session, Can.REQUESTS_READ)
    ),
    controller("/requests", report(requests.list_requests_of_all, Can.REQUESTS_READ, operator_only=True)),
    controller(
        "/requests/{request_id}",
        get(requests.get_request, Can.REQUESTS_READ),
        get(requests.get_placements, Can.REQUESTS_READ, "/placements", operator_only=True),
    ),
    controller(
        "/organizations/{organization_id}/webhooks",
        get(webhooks.list_webhooks, Can.WEBHOOKS_READ),
        post(webhooks.create_webhook, Can.WEBHOOKS_WRITE),
    ),
    controller(
        "/webhooks/{webhook_id}",
        get(webhooks.get_webhook, Can.WEBHOOKS_READ),
        patch(webhooks.update_webhook, Can.WEBHOOKS_WRITE),
        delete(webhooks.delete_webhook, Can.WEBHOOKS_WRITE),
        post(webhooks.rotate_webhook_secret, Can.WEBHOOKS_WRITE, "/rotate-secret"),
        post(webhooks.test_webhook, Can.WEBHOOKS_WRITE, "/test"),
    ),
    controller("/webhooks/{webhook_id}/deliveries", get(deliveries.list_deliveries, Can.WEBHOOKS_READ)),
    controller(
        "/deliveries/{delivery_id}",
        get(deliveries.get_delivery, Can.WEBHOOKS_READ),
        post(deliveries.retry_delivery, Can.WEBHOOKS_WRITE, "/retry", status=200),
    ),
    controller("/audit", report(audit_log.list_audit, Can.AUDIT_READ)),
    controller("/organizations/{organization_id}/usage", report(usage.get_usage, Can.USAGE_READ)),
    controller("/organizations/{organization_id}/autocomplete", report(autocomplete.get_autocomplete, Can.USAGE_READ)),
    controller(
        "/organizations/{organization_id}/completion-texts",
        report(completion_texts.list_completion_texts, Can.PROMPTS_READ),
    ),
    controller("/organizations/{organization_id}/diagnosis", report(diagnosis.get_diagnosis, Can.REQUESTS_READ)),
    controller("/diagnosis", report(diagnosis.get_diagnosis_of_all, Can.REQUESTS_READ, operator_only=True)),
    controller("/organizations/{organization_id}/prefix-contract", report(prefixes.list_prefix_shares, Can.USAGE_READ)),
    controller("/organizations/{organization_id}/prefix-totals", report(prefixes.get_prefix_totals, Can.USAGE_READ)),
    controller("/organizations/{organization_id}/prefix-drops", get(prefixes.list_prefix_drops, Can.USAGE_READ)),
    controller("/organizations/{organization_id}/prefix-texts", report(prefixes.list_prefix_texts, Can.PROMPTS_READ)),
    controller(
        "/changes",
        get(changes.list_changes, Can.REQUESTS_READ, operator_only=True),
        post(changes.create_change, Can.CHANGES_WRITE, operator_only=True),
        delete(changes.delete_change, Can.CHANGES_WRITE, "/{change_id}", operator_only=True),
        post(changes.measure_change, Can.CHANGES_WRITE, "/{change_id}/measure", operator_only=True, status=200),
    ),
    controller("/shadow", report(shadow.get_shadow, Can.REQUESTS_READ, operator_only=True)),
    controller(
        "/reviews",
        get(reviews.list_reviews, Can.REVIEWS_VOTE, operator_only=True),
        get(reviews.next_review, Can.REVIEWS_VOTE, "/next", operator_only=True),
        post(reviews.create_vote, Can.REVIEWS_VOTE, "/{review_id}/votes", operator_only=True),
    ),
    controller(
        "/evals/runs",
        get(evals.list_eval_runs, Can.EVALS_READ, operator_only=True),
        post(evals.create_eval_run, Can.EVALS_WRITE, operator_only=True),
        get(evals.get_eval_run, Can.EVALS_READ, "/{run_id}", operator_only=True),
        get(evals.list_eval_items, Can.EVALS_READ, "/{run_id}/items", operator_only=True),
        post(evals.cancel_eval_run, Can.EVALS_WRITE, "/{run_id}/cancel", operator_only=True, status=200),
    ),
    controller(
        "/evals/nights",
        get(eval_nights.list_eval_nights, Can.EVALS_READ, operator_only=True),
        get(eval_nights.get_night_status, Can.EVALS_READ, "/status", operator_only=True),
    ),
    controller("/evals/slices", get(eval_slices.list_eval_slices, Can.EVALS_READ, operator_only=True)),
    controller("/evals/scores", get(eval_scores.list_slice_scores, Can.EVALS_READ, operator_only=True)),
    controller(
        "/evals/comparisons",
        get(evals.list_eval_comparisons, Can.EVALS_READ, operator_only=True),
        post(evals.create_eval_comparison, Can.EVALS_WRITE, operator_only=True),
        get(evals.get_eval_comparison, Can.EVALS_READ, "/{comparison_id}", operator_only=True),
        post(evals.cancel_eval_comparison, Can.EVALS_WRITE, "/{comparison_id}/cancel", operator_only=True, status=200),
    ),
    controller("/usage", report(usage.get_usage_of_all, Can.USAGE_READ, operator_only=True)),
    controller("/organizations/{organization_id}/usage/events", report(usage.list_usage_events, Can.USAGE_READ)),
    controller("/organizations/{organization_id}/invoices/{month_name}", report(usage.get_invoice, Can.USAGE_READ)),
    controller("/organizations/{organization_id}/slo", report(slo.get_slo, Can.USAGE_READ)),
    controller("/organizations/{organization_id}/slo/goodput", report(slo.get_goodput, Can.USAGE_READ)),
    controller("/organizations/{organization_id}/slo/token-costs", report(good_tokens.get_token_costs, Can.USAGE_READ)),
    controller("/slo", report(slo.get_slo_of_all, Can.USAGE_READ, operator_only=True)),
    controller("/slo/goodput", report(slo.get_goodput_of_all, Can.USAGE_READ, operator_only=True)),
    controller("/slo/token-costs", report(good_tokens.get_token_costs_of_all, Can.USAGE_READ, operator_only=True)),
    controller("/slo/pools", report(slo.get_pool_costs, Can.USAGE_READ, operator_only=True)),
    controller("/serving", report(serving.get_serving, Can.USAGE_READ, operator_only=True)),
    controller(
        "/prices",
        get(prices.list_prices, Can.PRICES_READ),
        post(prices.create_price, Can.PRICES_WRITE, operator_only=True),
        patch(prices.update_price, Can.PRICES_WRITE, "/{price_version}", operator_only=True),
        delete(prices.delete_price, Can.PRICES_WRITE, "/{price_version}", operator_only=True),
    ),
    controller(
        "/models",
        get(models.list_models, Can.FLEET_READ, operator_only=True),
        post(models.add_model, Can.FLEET_WRITE, operator_only=True, versioned=True),
        get(models.get_model, Can.FLEET_READ, "/{model_name}", operator_only=True),
        put(models.put_model, Can.FLEET_WRITE, "/{model_name}", operator_only=True, versioned=True),
        delete(models.delete_model, Can.FLEET_WRITE, "/{model_name}", operator_only=True, versioned=True),
    ),
    controller("/engine-models", ask(models.list_engine_models, Can.FLEET_WRITE, operator_only=True)),
    controller(
        "/aliases/{alias}",
        put(models.put_alias, Can.FLEET_WRITE, operator_only=True, versioned=True),
        delete(models.delete_alias, Can.FLEET_WRITE, operator_only=True, versioned=True),
    ),
    controller(
        "/cascades/{model_name}",
        put(cascades.approve_cascade, Can.FLEET_WRITE, operator_only=True, versioned=True),
    ),
    controller(
        "/pools",
        get(pools.list_pools, Can.FLEET_READ, operator_only=True),
        get(pools.get_pool, Can.FLEET_READ, "/{pool_name}", operator_only=True),
        put(pools.put_pool, Can.FLEET_WRITE, "/{pool_name}", operator_only=True, versioned=True),
        delete(pools.delete_pool, Can.FLEET_WRITE, "/{pool_name}", operator_only=True, versioned=True),
    ),
    controller(
        "/pools/{pool_name}/replicas/{replica_id}",
        get(pools.get_replica, Can.FLEET_READ, operator_only=True),
        put(pools.put_replica, Can.FLEET_WRITE, operator_only=True, versioned=True),
        patch(pools.weigh_replica, Can.FLEET_WRITE, operator_only=True, versioned=True),
        delete(pools.delete_replica, Can.FLEET_WRITE, operator_only=True, versioned=True),
    ),
    controller(
        "/fleet",
        get(fleet.get_fleet, Can.FLEET_READ, operator_only=True),
        get(fleet.get_live_fleet, Can.FLEET_READ, "/live", operator_only=True),
        get(fleet.list_fleet_versions, Can.FLEET_READ, "/versions", operator_only=True),
        get(fleet.get_fleet_version, Can.FLEET_READ, "/versions/{fleet_version}", operator_only=True),
        post(fleet.roll_back_fleet, Can.FLEET_WRITE, "/rollback", operator_only=True, versioned=True, status=200),
    ),
    controller(
        "/releases",
        get(releases.list_releases, Can.RELEASES_READ, operator_only=True),
        post(releases.start_release, Can.RELEASES_WRITE, operator_only=True),
        get(releases.get_release, Can.RELEASES_READ, "/{release_id}", operator_only=True),
        get(releases.list_release_steps, Can.RELEASES_READ, "/{release_id}/steps", operator_only=True),
        get(release_evidence.get_release_evidence, Can.RELEASES_READ, "/{release_id}/evidence", operator_only=True),
        post(releases.hold_release, Can.RELEASES_WRITE, "/{release_id}/hold", operator_only=True, status=200),
        post(releases.resume_release, Can.RELEASES_WRITE, "/{release_id}/resume", operator_only=True, status=200),
        post(releases.promote_release, Can.RELEASES_WRITE, "/{release_id}/promote", operator_only=True, status=200),
        post(releases.roll_back_release, Can.RELEASES_WRITE, "/{release_id}/roll-back", operator_only=True, status=200),
    ),
    controller("/reconciliations", get(checks.list_reconciliations, Can.RECONCILIATION_READ, operator_only=True)),
    controller(
        "/usage-verifications", get(checks.list_usage_verifications, Can.RECONCILIATION_READ, operator_only=True)
    ),
)
OPERATIONS: tuple[Operation, ...] = tuple(
    handler.opt["operation"]
    for each in CONTROLLERS
    for handler in vars(each).values()
    if isinstance(handler, HTTPRouteHandler) and "operation" in handler.opt
)


async def provide_admin(request: BoundedRequest) -> AdminApi:
    """The runner of services, for the handlers."""
    admin: AdminApi = request.app.state.services.admin
    return admin


def admin_operations(limits: RequestConfig) -> Router:
    """All operations, below /admin/v1. limits: limits of bodies, as for the inference endpoints."""
    return Router(
        path=PREFIX,
        route_handlers=[*CONTROLLERS, events_route()],
        guards=[require_permission, require_known_parameters],
        dependencies={"admin": Provide(provide_admin)},
        request_class=BoundedRequest,
        opt={"body_limits": limits},
    )
