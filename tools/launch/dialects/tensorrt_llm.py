"""TensorRT-LLM's dialect: `trtllm-serve` and the YAML that it reads, for 1.2 and later releases.

Releases differ in names and in the meaning of a draft schedule's keys: see `options/tensorrt_llm.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contracts.errors import ConfigError
from engines.performance.precision import Precision
from tools.launch.checkpoint import PLAIN
from tools.launch.draft_head import layers_read
from tools.launch.matrix import SettingsConflict
from tools.launch.options.tensorrt_llm import NEW, SCHEDULED, Release, release_of, require_known
from tools.launch.sizing import Drafts
from tools.launch.spec import Argument, LaunchFile, LaunchSpec, Variable
from tools.launch.target import Target
from tools.launch.yaml_text import Entry, paths_of, text_of

STABLE = "1.2.1"
FLASHINFER = "FLASHINFER"
SERVER_ROLES = {"prefill": "context", "decode": "generation"}
TRANSFERS = ("default", "ucx", "nixl", "mooncake", "mpi")
BEHIND_KEY = "the proxy in front checks the key"
NO_KEY = "trtllm-serve checks no key: only this deployment may reach its address"


def render(target: Target) -> LaunchSpec:
    """The command and the YAML of one replica. Raises ConfigError."""
    launch = target.launch
    version = launch.version or STABLE
    release = release_of(version, f"{target.field}.version")
    _require_possible(target, release)
    entries = tuple(_entries(target, release))
    require_known(paths_of(entries), release, target.field)
    config = target.path("yaml")
    return LaunchSpec(
        replica=target.replica.id,
        pool=target.pool.name,
        engine=f"TensorRT-LLM {version}",
        speculation=target.sizing.drafts is not None,
        program=("trtllm-serve", launch.model),
        arguments=(*_arguments(target, release, config), *(Argument(word) for word in launch.extra_arguments)),
        files=(LaunchFile(config, text_of(entries)),),
        environment=tuple(_environment(target, release)),
        notes=tuple(_notes(target, release)),
    )


def _arguments(target: Target, release: Release, config: str) -> Iterator[Argument]:
    # a pool that requires a key has a proxy that checks it, which no client may bypass
    host = target.launch.host or ("127.0.0.1" if target.pool.api_key_required else target.host)
    yield Argument("--host", (host,), BEHIND_KEY if target.pool.api_key_required else NO_KEY)
    yield Argument("--port", (str(target.port),))
    yield Argument("--backend", ("pytorch",))
    yield Argument("--config" if release >= NEW else "--extra_llm_api_options", (config,))
    if release >= NEW:
        yield Argument("--no-telemetry", (), "usage figures go to its maker otherwise")
    if target.pool.role != "unified":
        yield Argument("--server_role", (SERVER_ROLES[target.pool.role],), "half of a pair, with a front")


def _entries(target: Target, release: Release) -> Iterator[Entry]:
    sizing, launch = target.sizing, target.launch
    yield Entry("tensor_parallel_size", sizing.tensor_parallel.value, sizing.tensor_parallel.why)
    yield Entry("max_batch_size", sizing.max_running.value, sizing.max_running.why)
    yield _tokens_of_a_step(target)
    yield Entry("max_seq_len", sizing.context_tokens.value, sizing.context_tokens.why)
    yield Entry("enable_chunked_prefill", True, "without it a prompt longer than max_num_tokens is refused")
    if launch.attention == "flashinfer":
        yield Entry("attn_backend", FLASHINFER, "as set, instead of its own kernels")
    yield Entry("stream_interval", 1, "every token is an event: no extra pauses")
    yield Entry("enable_iter_perf_stats", True, "the router learns its load from it")
    if release >= SCHEDULED:
        yield Entry("return_perf_metrics", True, "counters for the worker's reconciliation")
    elif release < NEW:
        yield Entry("return_perf_metrics", True, "/prometheus/metrics, without tokens")
    yield Entry("kv_cache_config", tuple(_cache(target)))
    order = [
        Entry("capacity_scheduler_policy", "GUARANTEED_NO_EVICT", "running requests are never preempted and restarted")
    ]
    if target.pool.request_priorities:
        order.append(Entry("waiting_queue_policy", "priority", "pools.request_priorities: the gateway sends them"))
    yield Entry("scheduler_config", tuple(order))
    if target.pool.role == "prefill":
        yield Entry("disable_overlap_scheduler", True, "a context server hands its keys and values on between steps")
    if target.pool.role != "unified":
        transfer = (
            Entry("backend", launch.transfer_backend.upper(), "of both halves"),
            Entry("max_tokens_in_buffer", sizing.context_tokens.value, "the longest prompt that is moved at once"),
        )
        yield Entry("cache_transceiver_config", transfer, "half of a pair")
    if sizing.drafts is not None:
        yield Entry("speculative_config", tuple(_speculation(sizing.drafts, release)))


def _tokens_of_a_step(target: Target) -> Entry:
    sizing = target.sizing
    checked = sizing.max_running.value * (sizing.drafts.tokens if sizing.drafts else 1)
    if target.pool.role == "decode":
        return Entry("max_num_tokens", checked, "of every stream all that is checked at once; prompts come finished")
    chunk = sizing.chunk_tokens
    if checked > chunk.value:
        return Entry(
            "max_num_tokens", checked, f"of every stream all that is checked at once, more than {chunk.value:,}"
        )
    return Entry("max_num_tokens", chunk.value, chunk.why)


def _cache(target: Target) -> Iterator[Entry]:
    sizing = target.sizing
    yield Entry("dtype", "fp8" if sizing.kv_dtype.value == "fp8" else "auto", sizing.kv_dtype.why)
    yield Entry("enable_block_reuse", True, "the prefix cache; chat requests are salted by tenant")
    memory = sizing.node.memory
    free = memory.total_bytes - memory.weights_bytes - (sizing.drafts.head_bytes if sizing.drafts else 0.0)
    yield Entry(
        "free_gpu_memory_fraction",
        int(memory.kv_bytes / free * 100) / 100,
        f"of what weights leave: {memory.kv_bytes / 1e9:.1f} of {free / 1e9:.1f} GB, {memory.kv_tokens:,} tokens",
    )


def _speculation(drafts: Drafts, release: Release) -> Iterator[Entry]:
    config, new = drafts.config, release >= NEW
    yield Entry("decoding_type", "Eagle3" if new else "Eagle", "" if new else "its name for EAGLE-3")
    yield Entry("max_draft_len", drafts.steps.value, drafts.steps.why)
    yield Entry("speculative_model" if new else "speculative_model_dir", config.draft_model)
    if layers := layers_read(Path(config.draft_model)):
        yield Entry(
            "eagle3_layers_to_capture", list(layers), "the layers that the head was trained with, as its folder states"
        )
    if config.topk > 1:
        yield Entry("use_dynamic_tree", True)
        yield Entry("dynamic_tree_max_topK", config.topk)
        yield Entry("max_total_draft_tokens", drafts.tokens - 1, "the one after them is the model's own")
    elif config.adaptive and release >= SCHEDULED:
        yield Entry(
            "draft_len_schedule", drafts.schedule, "number of drafts up to this batch; none beyond the last one"
        )
    elif config.adaptive:
        largest = max(drafts.schedule)
        yield Entry("max_concurrency", largest, "at larger batches drafts cost more than they save")


def _environment(target: Target, release: Release) -> Iterator[Variable]:
    found = target.sizing.checkpoint
    if release < NEW and found is not None and found.kv_scales and target.sizing.kv_dtype.value == "fp8":
        yield Variable("TRTLLM_LOAD_KV_SCALES", "1", "else 1.2 takes every scale of keys and values to be 1.0")


def _notes(target: Target, release: Release) -> Iterator[str]:
    if not target.pool.api_key_required:
        yield NO_KEY
    if NEW <= release < SCHEDULED:
        yield (
            "return_perf_metrics is left out: some releases of 1.3 then lose most load reports for the router; "
            "without it there are no counters, and no reconciliation. Set it where TensorRT-LLM's pull request 13405 "
            "is in yours"
        )
    if release < NEW:
        yield (
            "/metrics answers once no iteration has come for two seconds: set router.probe_timeout_s = 3, and expect "
            "no report of load while requests run"
        )
    if target.launch.priorities and not target.pool.request_priorities and release >= NEW:
        yield "requests are served in their order; with the pool's request_priorities = true, by priority"
    if target.sizing.drafts is not None:
        yield "repetition, presence and frequency penalties are refused by an engine that drafts"
    if target.replica.kv_events:
        yield "it publishes no KV events over ZeroMQ: leave the replica's kv_events empty"


def _require_possible(target: Target, release: Release) -> None:
    launch, sizing = target.launch, target.sizing
    speculation = f"{target.field}.speculation"
    found = sizing.checkpoint
    if found is not None and found.toolchain == PLAIN and sizing.weights.value is not Precision.BF16:
        raise ConfigError(
            f"{target.field}.weights: trtllm-serve rounds no weights at its start, and {launch.model} holds BF16; name "
            "a "
            'folder that ModelOpt wrote in FP8, or set weights = "bf16"',
            param=f"{target.field}.weights",
        )
    if launch.attention not in ("auto", "flashinfer"):
        raise ConfigError(
            f"{target.field}.attention: TensorRT-LLM has its own kernels instead of {launch.attention}; set "
            "auto, or flashinfer",
            param=f"{target.field}.attention",
        )
    if target.pool.request_priorities and release < NEW:
        raise SettingsConflict(
            f"pools.{target.pool.name}.request_priorities: TensorRT-LLM {release[0]}.{release[1]} answers 400 to a "
            f"request with a priority; set it false, or {target.field}.version to 1.3 or later",
            param=f"pools.{target.pool.name}.request_priorities",
        )
    if launch.transfer_backend.lower() not in TRANSFERS:
        raise ConfigError(
            f"{target.field}.transfer_backend: TensorRT-LLM moves keys and values by {', '.join(TRANSFERS)}, not by "
            f"{launch.transfer_backend}",
            param=f"{target.field}.transfer_backend",
        )
    if sizing.drafts is None:
        return
    if sizing.drafts.config.algorithm != "eagle3":
        raise SettingsConflict(
            f"{speculation}.algorithm: heads of the first two EAGLEs are refused by its PyTorch backend, and n-grams "
            "are not rendered; use eagle3",
            param=f"{speculation}.algorithm",
        )
    if sizing.drafts.config.topk > 1 and release < NEW:
        raise SettingsConflict(
            f"{speculation}.topk: TensorRT-LLM 1.2 drafts chains only; set topk = 1, or {target.field}.version to 1.3 "
            "or later",
            param=f"{speculation}.topk",
        )
