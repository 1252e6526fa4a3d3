"""Every endpoint of the admin API. A new resource file is one line here."""

from __future__ import annotations

from gateway.admin.endpoint import Endpoint
from gateway.admin.resources import (
    admin_keys,
    keys,
    limits,
    me,
    members,
    organizations,
    prices,
    projects,
    requests,
    service_accounts,
    usage,
    webhook_deliveries,
)
from gateway.admin.resources import audit_log as audit
from gateway.admin.resources import reconciliations as reconciliation
from gateway.admin.resources import webhooks as webhook_settings

ENDPOINTS: tuple[Endpoint, ...] = (
    *me.ENDPOINTS,
    *organizations.ENDPOINTS,
    *members.ENDPOINTS,
    *service_accounts.ENDPOINTS,
    *admin_keys.ENDPOINTS,
    *projects.ENDPOINTS,
    *keys.ENDPOINTS,
    *limits.ENDPOINTS,
    *requests.ENDPOINTS,
    *webhook_settings.ENDPOINTS,
    *webhook_deliveries.ENDPOINTS,
    *audit.ENDPOINTS,
    *usage.ENDPOINTS,
    *prices.ENDPOINTS,
    *reconciliation.ENDPOINTS,
)
