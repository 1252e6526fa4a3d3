"""All tables of the schemas `gateway` and `evals` in one place: importing this module registers every package's on
`metadata`.
"""

from __future__ import annotations

from gateway.admin import tables as admin_tables
from gateway.audit import tables as audit_tables
from gateway.autocomplete import tables as autocomplete_tables
from gateway.autocomplete import total_tables as autocomplete_total_tables
from gateway.console import tables as console_tables
from gateway.db.tables import metadata
from gateway.diagnosis import tables as diagnosis_tables
from gateway.evals import tables as evals_tables
from gateway.limits import tables as limits_tables
from gateway.metering import tables as metering_tables
from gateway.prefixes import tables as prefixes_tables
from gateway.releases import tables as releases_tables
from gateway.shadow import tables as shadow_tables
from gateway.slo import serving_tables
from gateway.slo import tables as slo_tables
from gateway.tenants import tables as tenants_tables

MODULES = (
    limits_tables,
    admin_tables,
    audit_tables,
    autocomplete_tables,
    autocomplete_total_tables,
    console_tables,
    diagnosis_tables,
    evals_tables,
    metering_tables,
    prefixes_tables,
    releases_tables,
    shadow_tables,
    slo_tables,
    serving_tables,
    tenants_tables,
)
"""Where the tables are that gateway/db/tables.py does not hold itself."""

__all__ = ["MODULES", "metadata"]
