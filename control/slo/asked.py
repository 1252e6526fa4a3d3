"""SQL over rows of `gateway.request_traces` that selects the requests of a diagnosis and classifies their outcomes: for
windows read from traces (control/diagnosis/counts.py) and for totals by hour (request_rollup.py).
"""

from __future__ import annotations

from contracts.fair_share import FAIR_SHARE
from contracts.service_class import ServiceClass
from control.slo.judgement import FAILED

LIMIT_CODES = ("rate_limit_exceeded", "insufficient_quota", "request_exceeds_limit", "too_many_connections")
WAITED_FOR = f"service_class IS DISTINCT FROM '{ServiceClass.OFFLINE}'"
"""A client waits for the request. An offline request waits on purpose, and is neither slow nor refused for that."""
LIMITED = "error_code IN ({})".format(", ".join(f"'{code}'" for code in LIMIT_CODES))
RETRIED = f"coalesce(attempts > 1 AND NOT {FAILED}, false)"
"""The request needed another engine, and succeeded there."""
FAILED_CODE = f"CASE WHEN {FAILED} AND NOT coalesce(over_share, false) THEN coalesce(error_code, '') ELSE '' END"
"""The error code of a request that failed, but not by its organization's excess; otherwise empty, as without a code."""
KNOWN_MODEL = "model IS NOT NULL AND (tier IS NOT NULL OR status >= 500)"
"""The model exists. A request without a tier was refused before it was prepared, most often for a name that its client
made up: counted by name, one client could fill memory with names."""
RULE = f"""CASE WHEN {LIMITED} THEN coalesce(rule->>'counter' || ' of the ' || (rule->>'level'), error_code)
                 WHEN over_share THEN '{FAIR_SHARE}' ELSE '' END"""
"""The rule that refused the request; empty if the request failed instead."""
