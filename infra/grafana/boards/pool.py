"""A pool's replicas: their state, load, speed and caches."""

from __future__ import annotations

from infra.grafana.board import Board, Panel, Query, Variable
from infra.grafana.promql import quantiles, rate, share

POOL = 'pool=~"$pool"'

BOARD = Board(
    name="pool",
    title="Slipstream: pool",
    description="A pool's replicas: their state, load, speed and caches.",
    variables=(Variable("pool", "Pool", "label_values(slipstream_router_queued, pool)"),),
    panels=(
        Panel(
            title="Usable replicas",
            description="Part of the pool's replicas that the router gives leases: probe answered, breaker closed.",
            unit="percentunit",
            queries=(
                Query(
                    f"avg by (pool) (slipstream_router_replica_healthy{{{POOL}}}"
                    f" * on (pool, replica) (1 - slipstream_router_breaker_open{{{POOL}}}))",
                    "{{pool}}",
                ),
            ),
            alerts=("engines/ReplicaDown",),
        ),
        Panel(
            title="Queued",
            description="Lease requests that wait at the router for a slot.",
            unit="short",
            queries=(Query(f"sum by (pool) (slipstream_router_queued{{{POOL}}})", "{{pool}}"),),
            alerts=("requests/RequestsAreShed", "latency/FirstTokenWaitsInQueue"),
        ),
        Panel(
            title="Leases",
            description="Requests that each replica has now, and how many it may have: learnt, reported by the engine,"
            " or the pool's max_concurrency.",
            unit="short",
            queries=(
                Query(f"slipstream_router_leases{{{POOL}}}", "{{replica}}"),
                Query(f"slipstream_router_max_concurrency{{{POOL}}}", "{{replica}} at most"),
            ),
        ),
        Panel(
            title="Slowness",
            description="First tokens of each replica in proportion to what the router expects of its pool; 1 is"
            " average.",
            unit="short",
            queries=(Query(f"slipstream_router_slowness{{{POOL}}}", "{{replica}}"),),
            alerts=("engines/OneReplicaIsSlow",),
        ),
        Panel(
            title="Time to first token",
            description="99th percentile of the pool's answers, by side of the model's split.",
            unit="s",
            queries=quantiles("slipstream_time_to_first_token_seconds", "pool", "side", where=POOL, of=(0.99,)),
            alerts=("latency/FirstTokenWaitsForPrefill",),
        ),
        Panel(
            title="Time per output token",
            description="99th percentile of the pool's answers, by side of the model's split.",
            unit="s",
            queries=quantiles("slipstream_time_per_output_token_seconds", "pool", "side", where=POOL, of=(0.99,)),
            alerts=("latency/DecodeIsSlow",),
        ),
        Panel(
            title="Prefill under way",
            description="Prompt tokens granted whose first token has not come.",
            unit="short",
            queries=(Query(f"slipstream_router_prefill_tokens{{{POOL}}}", "{{replica}}"),),
            alerts=("latency/FirstTokenWaitsForPrefill",),
        ),
        Panel(
            title="Inside the engine",
            description="95th percentile of the time that requests waited in their engine, of the time their prompt"
            " took, and of the time their schema was compiled where one was, of engines that report them.",
            unit="s",
            queries=(
                *quantiles("slipstream_engine_queue_seconds", "pool", where=POOL, of=(0.95,), name="{{pool}} queue"),
                *quantiles(
                    "slipstream_engine_prefill_seconds", "pool", where=POOL, of=(0.95,), name="{{pool}} prefill"
                ),
                *quantiles(
                    "slipstream_engine_grammar_seconds",
                    "pool",
                    where=POOL,
                    of=(0.95,),
                    name="{{pool}} grammar",
                    quiet="no schema was compiled",
                ),
            ),
            alerts=("latency/FirstTokenWaitsForPrefill",),
        ),
        Panel(
            title="Retracted",
            description="Requests a second that engines evicted from memory, to compute them again. Investigate "
            "any value above 0 first.",
            unit="ops",
            queries=(
                rate("slipstream_router_retractions_total", "pool", where=POOL),
                rate(
                    "slipstream_engine_retractions_total",
                    "pool",
                    where=POOL,
                    legend="{{pool}} by its engines' pages",
                    quiet="no engine of the pool has such a page",
                ),
            ),
            alerts=("engines/SequencesAreRetracted",),
        ),
        Panel(
            title="Headroom",
            description="KV tokens that each replica could still be given, of those that report it.",
            unit="short",
            queries=(Query(f"slipstream_router_headroom_tokens{{{POOL}}}", "{{replica}}"),),
            alerts=("engines/KvMemoryNearlyFull",),
        ),
        Panel(
            title="Cached tokens",
            description="Prompt tokens a second that engines reported as cached, and those that the router expected.",
            unit="short",
            queries=(
                rate("slipstream_router_reported_cached_tokens_total", "pool", where=POOL, legend="{{pool}} reported"),
                rate("slipstream_router_predicted_cached_tokens_total", "pool", where=POOL, legend="{{pool}} expected"),
            ),
        ),
        Panel(
            title="Drafts by load",
            description="1 while the pool's load lets its engines draft, and how often that changed in five minutes, of"
            " pools whose speculation is governed.",
            unit="short",
            queries=(
                Query(f"slipstream_router_speculation_on{{{POOL}}}", "{{pool}} drafts", quiet="no pool is governed"),
                Query(
                    f"increase(slipstream_router_speculation_switches_total{{{POOL}}}[5m])",
                    "{{pool}} switched",
                    quiet="no pool is governed",
                ),
            ),
        ),
        Panel(
            title="Load that governs drafts",
            description="Requests per usable replica, running and waiting, a mean over some 5 s: above"
            " pools[].speculation.off_above_running drafting ends, below on_below_running it begins again.",
            unit="short",
            queries=(Query(f"slipstream_router_speculation_load{{{POOL}}}", "{{pool}}", quiet="no pool is governed"),),
        ),
        Panel(
            title="Drafts that were right",
            description="Share of drafted tokens that were accepted, of engines whose load reports count drafts "
            "(TensorRT-LLM); others report drafts with each response, by model.",
            unit="percentunit",
            queries=(
                share(
                    f"slipstream_router_accepted_draft_tokens_total{{{POOL}}}",
                    f"slipstream_router_draft_tokens_total{{{POOL}}}",
                    "pool",
                    quiet="no engine of the pool reports drafts with its load",
                ),
            ),
        ),
        Panel(
            title="Prompt blocks",
            description="Prompt blocks that the router assumes each replica to have cached.",
            unit="short",
            queries=(Query(f"slipstream_router_prefix_blocks{{{POOL}}}", "{{replica}}"),),
        ),
        Panel(
            title="Files in memory",
            description="Part of the keystrokes within the pool's time that found the file in the engine's memory, and"
            " the part that should.",
            unit="percentunit",
            queries=(
                share(
                    f'slipstream_kv_survival_total{{kv="kept",{POOL}}}',
                    f"slipstream_kv_survival_total{{{POOL}}}",
                    "pool",
                ),
                Query(f"max by (pool) (slipstream_kv_survival_objective{{{POOL}}})", "objective {{pool}}"),
            ),
            alerts=("prefix/FilesAreForgottenBetweenKeystrokes",),
        ),
        Panel(
            title="Between two keystrokes",
            description="Time since the previous request of the same file, by what had become of what both prompts"
            " share.",
            unit="s",
            queries=quantiles("slipstream_file_gap_seconds", "pool", "kv", where=POOL, of=(0.5, 0.95)),
        ),
        Panel(
            title="Releases",
            description="Part of a model's sessions that its running release sends to the candidate, of all models.",
            unit="percentunit",
            queries=(Query("max by (model) (slipstream_release_share)", "{{model}}", "no release runs"),),
            alerts=("releases/ReleaseRolledBack", "releases/ReleaseIsBlind", "releases/ReleaseIsStuck"),
        ),
        Panel(
            title="Requests beyond ours",
            description="Requests that engines report beyond the router's leases: another client bypasses the "
            "gateways.",
            unit="short",
            queries=(Query(f"slipstream_router_foreign_requests{{{POOL}}}", "{{replica}}"),),
        ),
    ),
)
