"""The latency and phases of a tier's requests and, for autocomplete, the effect of further keystrokes."""

from __future__ import annotations

from infra.grafana.board import Board, Panel, Query, Variable
from infra.grafana.promql import quantiles, rate, share

TIER = 'tier=~"$tier"'
CLASS = f'{TIER},length=~"$length"'
CHOSEN = f'{CLASS},model=~"$model"'

BOARD = Board(
    name="tier",
    title="Slipstream: tier",
    description="The latency and phases of a tier's requests and, for autocomplete, the effect of further keystrokes.",
    variables=(
        Variable("tier", "Tier", "label_values(slipstream_active_requests, tier)"),
        Variable("model", "Model", "label_values(slipstream_time_to_first_token_seconds_count, model)"),
        Variable("length", "Length", "label_values(slipstream_time_to_first_token_seconds_count, length)"),
    ),
    panels=(
        Panel(
            title="Answers",
            description="Answers a second by tier, endpoint and HTTP status.",
            unit="reqps",
            queries=(rate("slipstream_requests_total", "tier", "endpoint", "status", where=TIER),),
            alerts=("requests/ServerErrors",),
        ),
        Panel(
            title="Attempts",
            description="Attempts on engines a second, by how they finished and how far their usage is known.",
            unit="reqps",
            queries=(rate("slipstream_attempts_total", "tier", "finish", "outcome", where=TIER),),
        ),
        Panel(
            title="Time to first token",
            description="From a request's arrival until its first text left the gateway.",
            unit="s",
            queries=quantiles("slipstream_time_to_first_token_seconds", "tier", where=CHOSEN),
            alerts=("latency/FirstTokenWaitsInQueue", "latency/FirstTokenWaitsForPrefill"),
        ),
        Panel(
            title="Time per output token",
            description="Mean time per token of a response after its first one. With the time to first token these are"
            " the two numbers of a promise; neither says anything about the other.",
            unit="s",
            queries=quantiles("slipstream_time_per_output_token_seconds", "tier", where=CHOSEN),
            alerts=("latency/DecodeIsSlow",),
        ),
        Panel(
            title="Time to first token by length",
            description="99th percentile by length class of the prompt: short below 4,096 tokens, medium below 16,384,"
            " long above.",
            unit="s",
            queries=quantiles("slipstream_time_to_first_token_seconds", "tier", "length", where=CHOSEN, of=(0.99,)),
            alerts=("latency/FirstTokenWaitsForPrefill",),
        ),
        Panel(
            title="Time per output token by length",
            description="99th percentile by length class of the prompt.",
            unit="s",
            queries=quantiles("slipstream_time_per_output_token_seconds", "tier", "length", where=CHOSEN, of=(0.99,)),
            alerts=("latency/DecodeIsSlow",),
        ),
        Panel(
            title="Longest gap",
            description="An answer's longest time between two arrivals of the engine's tokens, stalls of the client"
            " aside: a reader sees it as a stutter.",
            unit="s",
            queries=quantiles("slipstream_longest_gap_seconds", "tier", where=CHOSEN, of=(0.5, 0.99)),
            alerts=("latency/DecodeIsSlow", "engines/SequencesAreRetracted"),
        ),
        Panel(
            title="Gaps over 100 ms",
            description="Times between two arrivals of tokens that were longer than 100 ms, a second.",
            unit="ops",
            queries=(rate("slipstream_gaps_over_100ms_total", "tier", "length", where=CHOSEN),),
            alerts=("latency/DecodeIsSlow",),
        ),
        Panel(
            title="Between tokens",
            description="Every time between two arrivals of an answer's tokens, of all answers together: what a reader"
            " sees stand still, where the mean of an answer hides it.",
            unit="s",
            queries=quantiles("slipstream_inter_token_seconds", "tier", "length", where=CHOSEN, of=(0.5, 0.99)),
            alerts=("latency/DecodeIsSlow",),
        ),
        Panel(
            title="Clients that stall",
            description="How long a client's connection took no more of its answer, of requests where that happened:"
            " time that is neither ours nor the engine's.",
            unit="s",
            queries=quantiles(
                "slipstream_client_stall_seconds", "tier", where=TIER, of=(0.5, 0.99), quiet="no client stalled"
            ),
            alerts=("latency/ClientsStall",),
        ),
        Panel(
            title="Budget left",
            description="Part of the error budget of the last 28 days that is left: 1 untouched, 0 spent, below 0"
            " overspent.",
            unit="percentunit",
            queries=(
                Query(
                    f"max by (tier, length) (slipstream_slo_budget_left{{{CLASS}}})",
                    "{{tier}} {{length}}",
                ),
            ),
            alerts=("objectives/ErrorBudgetBurnsFast", "objectives/ErrorBudgetBurnsSlowly"),
        ),
        Panel(
            title="Shed beyond a share",
            description="Requests of the last 28 days that were refused for lack of room while their "
            "organization requested "
            "more than its share. They are no part of the budget; `slipstream diagnose` says whose they are.",
            unit="short",
            queries=(
                Query(
                    f"max by (tier, length) (slipstream_slo_over_share_requests{{{CLASS}}})",
                    "{{tier}} {{length}}",
                ),
            ),
            alerts=("objectives/ErrorBudgetBurnsFast",),
        ),
        Panel(
            title="Burn rate",
            description="How fast the error budget is used, over a short and a long window; both high is an alert.",
            unit="short",
            queries=(
                Query(
                    f'max by (tier, length, window) (slipstream_slo_burn_rate{{{CLASS},window=~"5m|1h"}})',
                    "{{tier}} {{length}} {{window}}",
                ),
            ),
            alerts=("objectives/ErrorBudgetBurnsFast",),
        ),
        Panel(
            title="Phases",
            description="95th percentile of each phase's time. Phases of one request add up, percentiles do not.",
            unit="s",
            queries=quantiles("slipstream_phase_seconds", "tier", "phase", where=TIER, of=(0.95,)),
            alerts=("latency/FirstTokenWaitsInQueue", "latency/FirstTokenWaitsForPrefill"),
        ),
        Panel(
            title="Tokens",
            description="Tokens metered a second, by tier and kind.",
            unit="short",
            queries=(rate("slipstream_tokens_total", "tier", "kind", where=TIER),),
        ),
        Panel(
            title="Cached",
            description="Part of the prompt tokens that engines had cached.",
            unit="percentunit",
            queries=(
                share(
                    f'slipstream_tokens_total{{kind="cached",{TIER}}}',
                    f'slipstream_tokens_total{{kind="prompt",{TIER}}}',
                    "tier",
                ),
            ),
        ),
        Panel(
            title="Running",
            description="Requests being served now.",
            unit="short",
            queries=(Query(f"sum by (tier) (slipstream_active_requests{{{TIER}}})", "{{tier}}"),),
        ),
        Panel(
            title="Shed",
            description="Share of lease requests that the router refused.",
            unit="percentunit",
            queries=(
                share(f"slipstream_router_refusals_total{{{TIER}}}", f"slipstream_router_asks_total{{{TIER}}}", "tier"),
            ),
            alerts=("requests/RequestsAreShed",),
        ),
        Panel(
            title="Typed on",
            description="Completions a second that a newer keystroke ended, by how far they were, and those answered"
            " from another request's generation, by kind.",
            unit="reqps",
            queries=(
                rate("slipstream_superseded_total", "stage", legend="superseded in {{stage}}", quiet="nobody typed on"),
                rate("slipstream_generations_reused_total", "kind", quiet="no gap was requested twice"),
            ),
        ),
        Panel(
            title="Time to stop an engine",
            description="From the moment when no client waited for a response until its engine confirmed the stop, by"
            " cause.",
            unit="s",
            queries=quantiles("slipstream_abort_seconds", "cause", of=(0.5, 0.99), quiet="nobody left"),
        ),
        Panel(
            title="Prefilled again",
            description="Prompt tokens computed for a keystroke in a file that was seen before, by model.",
            unit="short",
            queries=quantiles("slipstream_file_prefilled_again_tokens", "model", of=(0.5, 0.99)),
            alerts=("prefix/FilesAreForgottenBetweenKeystrokes",),
        ),
        Panel(
            title="Computed ahead",
            description="Next lines computed while replicas were idle, a second, by what became of them.",
            unit="ops",
            queries=(rate("slipstream_warm_ups_total", "outcome", quiet="no user has typed to the end of a line"),),
        ),
        Panel(
            title="Copied to candidates",
            description="Requests that were to be copied to a candidate, a second, by what became of it.",
            unit="ops",
            queries=(rate("slipstream_shadow_copies_total", "outcome", quiet="no model has a shadow_share"),),
        ),
        Panel(
            title="What editors report",
            description="Completions shown, taken and dismissed, a second; only of editors that report it.",
            unit="ops",
            queries=(rate("slipstream_autocomplete_events_total", "type", quiet="no editor has reported"),),
        ),
    ),
)
