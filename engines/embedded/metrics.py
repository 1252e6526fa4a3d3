"""The engine's metrics under SGLang's names, collected at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engines.embedded.service import Service
from engines.embedded.stats import Histogram

LABELS = ("model_name",)


class EngineCollector(Collector):
    """Collects the metrics of one service and counts nothing itself."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._labels = [service.name]

    def collect(self) -> Iterator[Metric]:
        """All families; none before the model is loaded."""
        engine = self._service.engine
        if engine is None:
            return
        stats, scheduler, store, pages = engine.stats, engine.scheduler, engine.store, engine.pages
        used, promised = scheduler.used_pages * store.page_tokens, scheduler.promised_pages * store.page_tokens
        available = max(pages.free * store.page_tokens - promised, 0)
        yield self._gauge("num_running_reqs", "Running sequences", len(scheduler.running))
        yield self._gauge("num_queue_reqs", "Waiting sequences", len(scheduler.waiting))
        yield self._gauge("num_used_tokens", "KV tokens in use", used)
        yield self._gauge("max_total_num_tokens", "Total KV tokens", store.total_tokens)
        yield self._gauge("token_usage", "Share of KV tokens in use", used / store.total_tokens)
        yield self._gauge("kv_available_tokens", "KV tokens in free pages that are not reserved", available)
        yield self._gauge("kv_promised_tokens", "KV tokens reserved for running sequences and not yet used", promised)
        yield self._gauge(
            "kv_evictable_tokens", "KV tokens held only by the prefix cache", pages.idle * store.page_tokens
        )
        yield self._gauge("kv_used_tokens", "KV tokens in pages that sequences own", used)
        yield self._gauge(
            "cache_hit_rate",
            "Share of prompt tokens found in the prefix cache, over the last step with prompts",
            stats.hit_rate,
        )
        yield self._gauge("gen_throughput", "Generated tokens per second", stats.throughput)
        yield self._counter("prompt_tokens", "Prompt tokens of requests that started", stats.prompt_tokens)
        yield self._counter("cached_tokens", "Prompt tokens found in the prefix cache", stats.cached_tokens)
        yield self._counter("generation_tokens", "Generated tokens", stats.generation_tokens)
        yield self._counter("num_requests", "Received requests", stats.requests)
        yield self._counter("num_aborted_requests", "Aborted requests", stats.aborted_requests)
        yield self._counter(
            "num_broken_requests", "Sequences ended because the model computed NaN or infinity", stats.broken_sequences
        )
        yield self._counter("num_retracted_requests", "Sequences preempted to free pages", scheduler.preemptions)
        yield self._counter(
            "num_yielded_requests",
            "Sequences preempted for an organization that holds less than its share",
            scheduler.yielded,
        )
        yield self._gauge("num_retracted_reqs", "Waiting sequences that were preempted", scheduler.waiting.preempted)
        yield self._counter("evicted_tokens", "Evicted KV tokens", engine.cache.evicted_pages * store.page_tokens)
        yield self._gauge("spec_accept_length", "Mean number of tokens gained per check of drafts", stats.accept_length)
        yield self._gauge("spec_accept_rate", "Share of drafted tokens that were accepted", stats.accept_rate)
        yield self._gauge(
            "spec_num_steps", "Maximum number of tokens drafted ahead", self._service.config.speculation.steps
        )
        yield self._gauge(
            "spec_num_draft_tokens", "Maximum number of tokens checked at once for a sequence", self._drafts_checked()
        )
        yield self._counter("spec_verify_calls", "Checks of a sequence's drafts", stats.draft_checks)
        yield self._counter("spec_drafts", "Drafted tokens that were checked", stats.drafts)
        yield self._counter("spec_accepted_drafts", "Drafted tokens that were accepted", stats.accepted_drafts)
        yield self._histogram("step_seconds", "Duration of a step", stats.step_s)
        yield self._histogram("time_to_first_token_seconds", "Time from arrival to first token", stats.first_token_s)
        yield self._histogram(
            "inter_token_latency_seconds", "Time between two tokens of a sequence", stats.inter_token_s
        )
        yield self._histogram("e2e_request_latency_seconds", "Time from arrival to last token", stats.request_s)
        yield self._histogram("queue_time_seconds", "Time from arrival to admission", stats.queue_s)
        yield self._histogram(
            "per_stage_req_latency_seconds", "Time of a stage of a request, by the label `stage`", stats.stages_s
        )

    def _drafts_checked(self) -> int:
        """Maximum tokens checked at once. The token before the drafts is checked with them."""
        config = self._service.config.speculation
        return config.max_drafts + 1 if config.drafts else 0

    def _gauge(self, name: str, help_: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"sglang:{name}", help_, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, help_: str, value: float) -> Metric:
        family = CounterMetricFamily(f"sglang:{name}", help_, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _histogram(self, name: str, help_: str, observed: Histogram | dict[str, Histogram]) -> Metric:
        """observed: one histogram, or one for each stage of a request."""
        stages = observed if isinstance(observed, dict) else {}
        family = HistogramMetricFamily(f"sglang:{name}", help_, labels=(*LABELS, *(["stage"] if stages else ())))
        for stage, histogram in stages.items():
            family.add_metric([*self._labels, stage], histogram.buckets(), histogram.total)
        if isinstance(observed, Histogram):
            family.add_metric(self._labels, observed.buckets(), observed.total)
        return family
