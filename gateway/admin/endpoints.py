"""Every endpoint of the admin API. A new resource file is one line here."""

from __future__ import annotations

from gateway.admin import (
    admin_keys,
    audit,
    keys,
    limits,
    me,
    members,
    organizations,
    prices,
    projects,
    reconciliation,
    requests,
    service_accounts,
    usage,
    webhook_deliveries,
    webhook_settings,
)
from gateway.admin.endpoint import Endpoint

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
