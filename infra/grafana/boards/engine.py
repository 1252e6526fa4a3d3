"""Engines with SGLang's metrics, including the embedded engine: sequences, KV memory, speed and drafts."""

from __future__ import annotations

from infra.grafana.board import Board, Panel, Query, Variable
from infra.grafana.promql import WINDOW, quantiles

CHOSEN = 'instance=~"$instance"'


def _gauge(name: str, legend: str = "{{instance}}") -> Query:
    return Query(f'{{__name__="sglang:{name}",{CHOSEN}}}', legend)


def _rate(name: str, legend: str = "{{instance}}") -> Query:
    return Query(f'sum by (instance) (rate({{__name__="sglang:{name}",{CHOSEN}}}{WINDOW}))', legend)


BOARD = Board(
    name="engine",
    title="Slipstream: engine",
    description="Engines with SGLang's metrics, including the embedded engine: sequences, KV memory, speed and drafts.",
    variables=(Variable("instance", "Engine", 'label_values({__name__="sglang:num_running_reqs"}, instance)'),),
    panels=(
        Panel(
            title="Sequences",
            description="Running, and waiting in the engine's own queue. Requests queued there are beyond the "
            "router's choice.",
            unit="short",
            queries=(
                _gauge("num_running_reqs", "{{instance}} running"),
                _gauge("num_queue_reqs", "{{instance}} waiting"),
            ),
            alerts=("latency/FirstTokenWaitsForPrefill",),
        ),
        Panel(
            title="KV memory",
            description="Part of the KV memory that running sequences hold; what only the cache holds is free. Of every"
            " engine that reports it to the router, in any dialect.",
            unit="percentunit",
            queries=(Query("slipstream_router_kv_used_ratio", "{{pool}} {{replica}}"),),
            alerts=("engines/KvMemoryNearlyFull",),
        ),
        Panel(
            title="Retracted",
            description="Sequences a second whose memory was taken away and which are computed again. Investigate "
            "any value above 0 first.",
            unit="ops",
            queries=(_rate("num_retracted_requests_total"),),
            alerts=("engines/SequencesAreRetracted",),
        ),
        Panel(
            title="Cache",
            description="Part of the last prompts found in the prefix cache.",
            unit="percentunit",
            queries=(_gauge("cache_hit_rate"),),
        ),
        Panel(
            title="Tokens",
            description="Tokens a second: prompts, the cached part of them, and generated.",
            unit="short",
            queries=(
                _rate("prompt_tokens_total", "{{instance}} prompt"),
                _rate("cached_tokens_total", "{{instance}} cached"),
                _rate("generation_tokens_total", "{{instance}} generated"),
            ),
        ),
        Panel(
            title="Evicted",
            description="KV tokens a second that gave way to others.",
            unit="short",
            queries=(_rate("evicted_tokens_total"),),
            alerts=("prefix/FilesAreForgottenBetweenKeystrokes",),
        ),
        Panel(
            title="Time in the engine's queue",
            description="From a request's arrival at the engine until its prompt was begun.",
            unit="s",
            queries=quantiles("sglang:queue_time_seconds", "instance", where=CHOSEN, of=(0.5, 0.99)),
            alerts=("latency/FirstTokenWaitsForPrefill",),
        ),
        Panel(
            title="Time to first token",
            description="From a request's arrival at the engine until its first token, by the engine's clock.",
            unit="s",
            queries=quantiles("sglang:time_to_first_token_seconds", "instance", where=CHOSEN, of=(0.5, 0.99)),
        ),
        Panel(
            title="Between tokens",
            description="Between two tokens of a sequence, by the engine's clock.",
            unit="s",
            queries=quantiles("sglang:inter_token_latency_seconds", "instance", where=CHOSEN, of=(0.5, 0.99)),
        ),
        Panel(
            title="Stages",
            description="95th percentile of the time that requests spend in each stage, by the engine's clock.",
            unit="s",
            queries=quantiles("sglang:per_stage_req_latency_seconds", "instance", "stage", where=CHOSEN, of=(0.95,)),
        ),
        Panel(
            title="Drafts",
            description="Part of the drafted tokens that were right, of engines that speculate.",
            unit="percentunit",
            queries=(_gauge("spec_accept_rate"),),
        ),
        Panel(
            title="Steps",
            description="How long a step takes; it computes one token of every running sequence, or a part of prompts.",
            unit="s",
            queries=quantiles("sglang:step_seconds", "instance", where=CHOSEN, of=(0.5, 0.99)),
        ),
    ),
)
