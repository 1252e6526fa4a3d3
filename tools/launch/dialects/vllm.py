"""vLLM's dialect: `vllm serve`, with the options of the release that `options/vllm.json` was read from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError
from tools.launch.config import MEMORY_FRACTION
from tools.launch.draft_head import require_layers_for_vllm, require_no_map_for_vllm
from tools.launch.key import read_key, source
from tools.launch.matrix import further_options
from tools.launch.options.known import known_options
from tools.launch.sizing import Drafts
from tools.launch.spec import Argument, LaunchSpec, Variable
from tools.launch.target import Target, zmq_port

ATTENTION = {"fa3": "FLASH_ATTN", "flashinfer": "FLASHINFER", "triton": "TRITON_ATTN"}
CLOSED = "a client that disconnects is billed the last count that it was sent; with the pool's abort_by_id = "
"true, the generated tokens"
KV_DTYPES = {"fp8": "fp8_e4m3", "bf16": "bfloat16"}


def render(target: Target) -> LaunchSpec:
    """The command of one replica. Raises ConfigError."""
    options = known_options("vllm", target.launch.version, f"{target.field}.version")
    field = f"{target.field}.extra_arguments"
    if "--api-key" in further_options(target.launch):
        raise ConfigError(
            f"{field}: a key never appears on a command line; give the pool's api_key_file or api_key_env", param=field
        )
    drafts = target.drafts
    if drafts is not None and drafts.config.algorithm == "eagle3":
        folder, of_drafts = Path(drafts.config.draft_model), f"{target.field}.speculation"
        require_layers_for_vllm(folder, of_drafts)
        require_no_map_for_vllm(folder, of_drafts)
    arguments = tuple(_arguments(target))
    options.require_once((each.name for each in arguments), further_options(target.launch), field)
    extra = tuple(Argument(word) for word in target.launch.extra_arguments)
    options.require([word for each in (*arguments, *extra) for word in each.words], field)
    return LaunchSpec(
        replica=target.replica.id,
        pool=target.pool.name,
        engine=f"vLLM {options.version}",
        speculation=target.drafts is not None,
        program=("vllm", "serve", target.launch.model),
        arguments=(*arguments, *extra),
        environment=tuple(_environment(target)),
        notes=() if target.pool.abort_by_id else (CLOSED,),
    )


def _arguments(target: Target) -> Iterator[Argument]:
    replica = target.replica
    yield Argument("--served-model-name", (target.model_name,), "the name in requests")
    yield Argument("--host", (target.host,), f"of {replica.url}")
    yield Argument("--port", (str(target.port),))
    yield from _of_gpu(target) if target.gpu_sizing is not None else _as_set(target)
    if target.launch.priorities:
        yield Argument("--scheduling-policy", ("priority",), "the gateway sends priorities")
    yield Argument("--enable-prefix-caching", (), "requests are salted by tenant")
    yield Argument(
        "--enable-prompt-tokens-details", (), "cached tokens in the usage, which are billed at their own price"
    )
    yield Argument("--enable-per-request-metrics", (), "times in the queue and in prefill of each response")
    if target.pool.abort_by_id:
        yield Argument("--enable-scale-out", (), "pools.abort_by_id: a client that leaves is billed an exact count")
    if target.pool.max_adapters:
        yield Argument("--enable-lora", (), "pools.max_adapters: adapters are loaded while it runs")
        yield Argument("--max-cpu-loras", (str(target.pool.max_adapters),), "as many as the router sends it")
        yield Argument("--max-loras", (str(target.adapters_in_batch),), "computed at once")
        yield Argument("--max-lora-rank", (str(target.launch.adapter_rank),))
    if replica.kv_events:
        yield Argument("--kv-events-config", (_kv_events(target),), "with * the engine listens and the router connects")
    if (drafts := target.drafts) is not None:
        yield Argument(
            "--per-request-spec-decode-metrics", ("summary",), "drafted and accepted tokens of each response"
        )
        yield Argument(
            "--speculative-config", (_speculation(drafts, target.sizing.max_running.value),), drafts.steps.why
        )


def _of_gpu(target: Target) -> Iterator[Argument]:
    sizing = target.sizing
    yield Argument("--tensor-parallel-size", (str(sizing.tensor_parallel.value),), sizing.tensor_parallel.why)
    if target.launch.weights == "fp8" and sizing.checkpoint is not None and not sizing.checkpoint.toolchain:
        yield Argument("--quantization", ("fp8",), "BF16 weights are rounded at the start, without calibration")
    yield Argument("--kv-cache-dtype", (KV_DTYPES[sizing.kv_dtype.value],), sizing.kv_dtype.why)
    yield Argument("--attention-backend", (ATTENTION[sizing.attention.value],), sizing.attention.why)
    yield Argument("--gpu-memory-utilization", (f"{sizing.memory.value:g}",), sizing.memory.why)
    yield Argument("--max-model-len", (str(target.context_tokens.value),), target.context_tokens.why)
    yield Argument("--max-num-batched-tokens", (str(sizing.chunk_tokens.value),), sizing.chunk_tokens.why)
    yield Argument("--max-num-seqs", (str(sizing.max_running.value),), sizing.max_running.why)


def _as_set(target: Target) -> Iterator[Argument]:
    """Without a GPU: vLLM chooses the rest."""
    launch = target.launch
    yield Argument("--max-model-len", (str(target.context_tokens.value),), target.context_tokens.why)
    if target.pool.tensor_parallel:
        yield Argument("--tensor-parallel-size", (str(target.pool.tensor_parallel),))
    if launch.memory_fraction != MEMORY_FRACTION:
        yield Argument("--gpu-memory-utilization", (f"{launch.memory_fraction:g}",))
    if launch.max_running:
        yield Argument("--max-num-seqs", (str(launch.max_running),))


def _kv_events(target: Target) -> str:
    replica, field = target.replica, f"pools.{target.pool.name}.replicas.{target.replica.id}"
    config: dict[str, Any] = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "topic": "kv-events",
        "endpoint": f"tcp://*:{zmq_port(replica.kv_events, f'{field}.kv_events')}",
    }
    if replica.kv_events_replay:
        config["replay_endpoint"] = f"tcp://*:{zmq_port(replica.kv_events_replay, f'{field}.kv_events_replay')}"
    return json.dumps(config, separators=(",", ":"))


def _speculation(drafts: Drafts, max_running: int) -> str:
    config: dict[str, Any] = {"method": drafts.config.algorithm, "num_speculative_tokens": drafts.steps.value}
    if drafts.config.draft_model:
        config["model"] = drafts.config.draft_model
    if drafts.config.adaptive:
        first, ranges = 1, []
        for last, steps in drafts.schedule.items():
            ranges.append([first, last, steps])
            first = last + 1
        if first <= max_running:
            ranges.append([first, max_running, 0])  # otherwise the last number applies to larger batches
        config["num_speculative_tokens_per_batch_size"] = ranges
    return json.dumps(config, separators=(",", ":"))


def _environment(target: Target) -> Iterator[Variable]:
    if read := read_key(target.pool, target.token_file):
        why = f"the API key, from {source(target.pool, target.token_file)}"
        yield Variable("VLLM_API_KEY", f"$({read})", why, secret=True)
    if target.pool.max_adapters:
        yield Variable("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1", "else it takes no adapter while it runs")
    yield Variable("VLLM_NO_USAGE_STATS", "1", "usage figures go to its makers otherwise")
