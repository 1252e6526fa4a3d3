"""The keys of TensorRT-LLM's YAML that the dialect writes, each with its first release and its source.

No machine of this project runs TensorRT-LLM, so its own parser cannot check them. Files are those of its repository at
the commits named in `tests/fakes/tensorrt_llm.md`; `llm_args` is `tensorrt_llm/llmapi/llm_args.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.errors import ConfigError

Release = tuple[int, int]
OLD, NEW, SCHEDULED = (1, 2), (1, 3), (1, 4)
ALWAYS: Release = (1, 0)
SCHEMA = "tensorrt_llm/schemas/trtllm-serve-config.schema.json 20e20312, of 1.4.0rc0"
KEYS: dict[str, tuple[Release, str]] = {
    "tensor_parallel_size": (ALWAYS, SCHEMA),
    "max_batch_size": (ALWAYS, SCHEMA),
    "max_num_tokens": (ALWAYS, SCHEMA),
    "max_seq_len": (ALWAYS, SCHEMA),
    "enable_chunked_prefill": (ALWAYS, SCHEMA),
    "attn_backend": (ALWAYS, "llm_args, TorchLlmArgs"),
    "stream_interval": (ALWAYS, SCHEMA),
    "enable_iter_perf_stats": (ALWAYS, SCHEMA),
    "return_perf_metrics": (ALWAYS, SCHEMA),
    "disable_overlap_scheduler": (ALWAYS, SCHEMA),
    "kv_cache_config": (ALWAYS, SCHEMA),
    "kv_cache_config.dtype": (ALWAYS, "llm_args, KvCacheConfig"),
    "kv_cache_config.enable_block_reuse": (ALWAYS, "llm_args, KvCacheConfig; docs/source/features/kvcache.md"),
    "kv_cache_config.free_gpu_memory_fraction": (ALWAYS, "llm_args, KvCacheConfig; docs/source/features/kvcache.md"),
    "scheduler_config": (ALWAYS, SCHEMA),
    "scheduler_config.capacity_scheduler_policy": (ALWAYS, "llm_args, SchedulerConfig"),
    "scheduler_config.waiting_queue_policy": (NEW, "llm_args, SchedulerConfig; scheduler/waiting_queue.py"),
    "cache_transceiver_config": (ALWAYS, SCHEMA),
    "cache_transceiver_config.backend": (ALWAYS, SCHEMA),
    "cache_transceiver_config.max_tokens_in_buffer": (ALWAYS, SCHEMA),
    "speculative_config": (ALWAYS, SCHEMA),
    "speculative_config.decoding_type": (ALWAYS, SCHEMA),
    "speculative_config.max_draft_len": (ALWAYS, SCHEMA),
    "speculative_config.speculative_model_dir": (ALWAYS, SCHEMA),
    "speculative_config.speculative_model": (NEW, SCHEMA),
    "speculative_config.eagle3_layers_to_capture": (OLD, "llm_args, EagleDecodingConfig; speculative/eagle3.py"),
    "speculative_config.max_concurrency": (ALWAYS, SCHEMA),
    # before 1.4, its keys were the smallest batch of each number of drafts, not the largest
    "speculative_config.draft_len_schedule": (SCHEDULED, SCHEMA),
    "speculative_config.use_dynamic_tree": (NEW, SCHEMA),
    "speculative_config.dynamic_tree_max_topK": (NEW, SCHEMA),
    "speculative_config.max_total_draft_tokens": (NEW, SCHEMA),
}


def release_of(version: str, field: str) -> Release:
    """`1.4.0rc1` as (1, 4). Raises ConfigError."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()) or (int(major), int(minor)) < OLD:
        raise ConfigError(f"{field}: {version!r} is no release of TensorRT-LLM from 1.2 on, as 1.2.1", param=field)
    return int(major), int(minor)


def require_known(paths: Iterable[str], release: Release, field: str) -> None:
    """Raises ConfigError for a key that this release does not know, and so would refuse."""
    for path in paths:
        since, _ = KEYS.get(path, (None, ""))
        if since is None or since > release:
            reason = "no release that was read has it" if since is None else f"it came with {since[0]}.{since[1]}"
            raise ConfigError(f"{field}: {path} of TensorRT-LLM {release[0]}.{release[1]}: {reason}", param=field)
