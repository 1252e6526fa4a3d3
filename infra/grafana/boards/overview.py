"""The responses that customers get, and the state of every part."""

from __future__ import annotations

from infra.grafana.board import Board, Panel, Query
from infra.grafana.promql import WINDOW, quantiles, rate, share

BOARD = Board(
    name="overview",
    title="Slipstream: overview",
    description="The responses that customers get, and the state of every part.",
    panels=(
        Panel(
            title="Alerts",
            description="Alerts that fire now, by name; empty when all is well.",
            unit="short",
            kind="stat",
            queries=(
                Query(
                    'sum by (alertname, severity) (ALERTS{alertstate="firing"})',
                    "{{alertname}} ({{severity}})",
                    "no alert fires",
                ),
            ),
        ),
        Panel(
            title="Processes",
            description="1 while Prometheus can scrape a process; 0 when it is dead, hangs or cannot be reached.",
            unit="short",
            queries=(Query('up{job=~"slipstream-.*"}', "{{instance}}"),),
            alerts=("processes/SlipstreamProcessDown", "processes/SlipstreamProcessKeepsRestarting"),
        ),
        Panel(
            title="Requests by status",
            description="Answers a second by HTTP status. 429 are limits, 503 a missing part or a full pool.",
            unit="reqps",
            stacked=True,
            queries=(rate("slipstream_requests_total", "status"),),
            alerts=("requests/ServerErrors",),
        ),
        Panel(
            title="Refusals by code",
            description="Answers a second that are errors, by error code; docs/reference/errors.md says what each"
            " means.",
            unit="reqps",
            queries=(rate("slipstream_requests_total", "code", where='code!="none"', quiet="no request was refused"),),
            alerts=("requests/ServerErrors",),
        ),
        Panel(
            title="Server errors",
            description="Part of the answers that are a 5xx, or a stream that ends in an error of ours, by tier,"
            " without requests beyond their organization's share.",
            unit="percentunit",
            queries=(
                share(
                    'slipstream_requests_total{status=~"2..|5..",code!~"none|client_gone|superseded|engine_refused|context_length_exceeded|invalid_value|unsupported_parameter",over_share!="true"}',
                    'slipstream_requests_total{over_share!="true"}',
                    "tier",
                    quiet="no request failed",
                ),
            ),
            alerts=("requests/ServerErrors",),
        ),
        Panel(
            title="Shed",
            description="Share of lease requests that the router refused, over about the last 2,000, by tier, and its "
            "upper objective.",
            unit="percentunit",
            queries=(
                Query("max by (tier) (slipstream_router_shed_ratio)", "{{tier}}"),
                Query("max(slipstream_router_shed_objective)", "objective"),
            ),
            alerts=("requests/RequestsAreShed",),
        ),
        Panel(
            title="Kept objectives",
            description="Part of the requests of the last 28 days that were good: that kept all objectives of their"
            " tier and length class; and the part that shall be.",
            unit="percentunit",
            queries=(
                Query(
                    "max by (tier, length) (slipstream_slo_attainment)",
                    "{{tier}} {{length}}",
                ),
                Query("max by (tier, length) (slipstream_slo_target)", "{{tier}} {{length}} objective"),
            ),
            alerts=("objectives/ErrorBudgetBurnsFast", "objectives/ErrorBudgetBurnsSlowly"),
        ),
        Panel(
            title="Error budget",
            description="How fast the error budget of 28 days is used: 1 spends it exactly in that time.",
            unit="short",
            queries=(
                Query(
                    'max by (tier, length, window) (slipstream_slo_burn_rate{window=~"1h|6h|3d"})',
                    "{{tier}} {{length}} {{window}}",
                ),
            ),
            alerts=(
                "objectives/ErrorBudgetBurnsFast",
                "objectives/ErrorBudgetBurnsSlowly",
                "objectives/ObjectivesAreNotCounted",
            ),
        ),
        Panel(
            title="Time to first token",
            description="From a request's arrival until its first text left the gateway, by tier.",
            unit="s",
            queries=quantiles("slipstream_time_to_first_token_seconds", "tier"),
            alerts=("latency/FirstTokenWaitsInQueue", "latency/FirstTokenWaitsForPrefill"),
        ),
        Panel(
            title="Time per output token",
            description="Mean time per token of a response after its first one, by tier.",
            unit="s",
            queries=quantiles("slipstream_time_per_output_token_seconds", "tier"),
            alerts=("latency/DecodeIsSlow",),
        ),
        Panel(
            title="Where the time goes",
            description="Seconds a request spends in each phase, on average over all requests but offline ones.",
            unit="s",
            stacked=True,
            queries=(
                Query(
                    f"sum by (phase) (rate(slipstream_phase_seconds_sum{WINDOW}))"
                    f" / scalar(max(sum by (phase) (rate(slipstream_phase_seconds_count{WINDOW}))) > 0)",
                    "{{phase}}",
                ),
            ),
        ),
        Panel(
            title="Running and queued",
            description="Requests being served by gateways, and lease requests that wait at the router for a slot.",
            unit="short",
            queries=(
                Query("sum by (tier) (slipstream_active_requests)", "{{tier}} running"),
                Query("sum by (pool) (slipstream_router_queued)", "{{pool}} queued"),
            ),
            alerts=("requests/RequestsAreShed",),
        ),
        Panel(
            title="Tokens",
            description="Tokens metered a second: prompt, cached, completion.",
            unit="short",
            queries=(rate("slipstream_tokens_total", "kind"),),
        ),
        Panel(
            title="Replicas",
            description="1 while the router gives a replica leases; 0 when its health check or its breaker keeps"
            " requests away.",
            unit="short",
            queries=(
                Query(
                    "slipstream_router_replica_healthy * on (pool, replica) (1 - slipstream_router_breaker_open)",
                    "{{pool}} {{replica}}",
                ),
            ),
            alerts=("engines/ReplicaDown",),
        ),
        Panel(
            title="Client connections",
            description="Connections of clients that are open, by gateway, and those that a limit ended, a second.",
            unit="short",
            queries=(
                Query("slipstream_client_connections", "{{instance}}"),
                rate(
                    "slipstream_client_connections_ended_total",
                    "reason",
                    legend="ended: {{reason}}",
                    quiet="no connection met a limit",
                ),
            ),
        ),
    ),
)
