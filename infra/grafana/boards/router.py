"""The router's decisions, their speed, and the requests that it refuses."""

from __future__ import annotations

from infra.grafana.board import Board, Panel, Query
from infra.grafana.promql import quantiles, rate

BOARD = Board(
    name="router",
    title="Slipstream: router",
    description="The router's decisions, their speed, and the requests that it refuses.",
    panels=(
        Panel(
            title="Asks",
            description="Lease requests answered a second by tier, those that were refused, those refused "
            "beyond their organization's share, and refusals of the class offline.",
            unit="reqps",
            queries=(
                rate("slipstream_router_asks_total", "tier"),
                rate("slipstream_router_refusals_total", "tier", legend="{{tier}} refused"),
                rate("slipstream_router_over_share_refusals_total", "tier", legend="{{tier}} over its share"),
                rate("slipstream_router_yielding_refusals_total", "tier", legend="{{tier}} offline, refused"),
            ),
            alerts=("requests/RequestsAreShed",),
        ),
        Panel(
            title="Shed by reason",
            description="Lease requests refused a second, by error code and reason.",
            unit="reqps",
            queries=(rate("slipstream_router_sheds_total", "code", "reason", quiet="nothing was refused"),),
            alerts=("requests/RequestsAreShed",),
        ),
        Panel(
            title="Shed",
            description="Share of lease requests refused, over about the last 2,000, by tier, and its upper objective.",
            unit="percentunit",
            queries=(
                Query("slipstream_router_shed_ratio", "{{tier}}"),
                Query("slipstream_router_shed_objective", "objective"),
            ),
            alerts=("requests/RequestsAreShed",),
        ),
        Panel(
            title="Time in the queue",
            description="Time that granted lease requests waited for a slot.",
            unit="s",
            queries=quantiles("slipstream_router_queue_seconds"),
            alerts=("latency/FirstTokenWaitsInQueue",),
        ),
        Panel(
            title="Time to decide",
            description="Time to decide one lease request, without reading and writing messages.",
            unit="s",
            queries=quantiles("slipstream_router_decision_seconds", of=(0.5, 0.99)),
        ),
        Panel(
            title="Grants",
            description="Leases granted a second, by replica.",
            unit="reqps",
            queries=(rate("slipstream_router_grants_total", "replica"),),
        ),
        Panel(
            title="Gateways",
            description="Gateways connected, and the version of the desired state that the router holds.",
            unit="short",
            queries=(
                Query("slipstream_router_gateways", "gateways"),
                Query("slipstream_router_desired_state_version", "desired state"),
            ),
        ),
        Panel(
            title="Breakers and probes",
            description="1 while a replica's breaker keeps requests away, and trial generations that the router sends "
            "to replicas where requests failed, a second.",
            unit="short",
            queries=(
                Query("slipstream_router_breaker_open", "{{replica}} open"),
                rate(
                    "slipstream_router_generation_probes_total",
                    "replica",
                    legend="{{replica}} tried",
                    quiet="no replica has failed",
                ),
            ),
            alerts=("engines/ReplicaDown",),
        ),
        Panel(
            title="Streams closed",
            description="Gateway streams a second that the router closed because they did not read or were replaced.",
            unit="ops",
            queries=(rate("slipstream_router_streams_closed_total", legend="closed"),),
        ),
        Panel(
            title="Processor",
            description="The part of one processor that the router uses; near 1 it is too slow for the load.",
            unit="percentunit",
            queries=(
                Query('rate(process_cpu_seconds_total{job="slipstream-router"}[$__rate_interval])', "{{instance}}"),
            ),
        ),
    ),
)
