"""All tables of the schemas `gateway` and `evals` in one place. Importing this module registers all of them on
`metadata`.
"""

from __future__ import annotations

from control.batches import tables as batches_tables
from control.completions import tables as autocomplete_tables
from control.completions import total_tables as autocomplete_total_tables
from control.console import tables as console_tables
from control.diagnosis import tables as diagnosis_tables
from control.prefixes import tables as prefixes_tables
from control.releases import tables as releases_tables
from control.responses import tables as responses_tables
from control.shadow import tables as shadow_tables
from control.slo import serving_tables
from control.slo import tables as slo_tables
from control.tenants import limit_tables as limits_tables
from control.webhooks import tables as admin_tables
from storage.tables import audit as audit_tables
from storage.tables import evals as evals_tables
from storage.tables import metering as metering_tables
from storage.tables import tenants as tenants_tables
from storage.tables.core import metadata

MODULES = (
    limits_tables,
    admin_tables,
    audit_tables,
    autocomplete_tables,
    autocomplete_total_tables,
    batches_tables,
    console_tables,
    diagnosis_tables,
    evals_tables,
    metering_tables,
    prefixes_tables,
    releases_tables,
    responses_tables,
    shadow_tables,
    slo_tables,
    serving_tables,
    tenants_tables,
)
"""The modules with tables that storage/tables/core.py lacks."""

__all__ = ["MODULES", "metadata"]
