"""Settings for starting a pool's engines, from which `slipstream tools engines render` makes commands.

They never enter the desired state: gateways and routers know engines by their URLs, however they were started.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MEMORY_FRACTION = 0.9
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class LaunchSpeculation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Speculative decoding: drafts of the next tokens, several of which the model checks at a time."""

    algorithm: Literal["eagle3", "eagle", "ngram"] = "eagle3"
    """Source of the drafts. `eagle3` and `eagle` use a small head that was trained for this model; `ngram` uses the
    text that followed the same tokens earlier."""

    draft_model: str = ""
    """Folder of the draft head on the engines' machines, for `eagle3` and `eagle`."""

    steps: Annotated[int, Meta(ge=0, le=15)] = 0
    """Maximum number of tokens drafted ahead; 0 means the number that saves most for a single stream."""

    topk: Annotated[int, Meta(ge=1, le=16)] = 1
    """Number of drafts kept after each token. 1 gives a chain, more give a tree (SGLang, and TensorRT-LLM from 1.3)."""

    draft_tokens: Annotated[int, Meta(ge=0, le=256)] = 0
    """Number of tokens of a tree that the model checks at once; 0 means a whole chain and the token after it."""

    adaptive: bool = True
    """Whether larger batches get fewer drafts, and none where drafts cost more than they save. It sets SGLang's
    adaptive table, the schedules of TensorRT-LLM and vLLM, or the embedded engine's own rule."""

    acceptance: Annotated[float, Meta(gt=0, lt=1)] = 0.7
    """Probability that the model accepts a draft after it accepted the drafts before it. It determines how many drafts
    pay off. A running engine's metrics show the actual rate."""


class LaunchWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pool's load and objectives, from which the largest batch and the number of GPUs are computed."""

    prompt_tokens: Annotated[float, Meta(ge=1)]
    """Mean length of prompts."""

    output_tokens: Annotated[float, Meta(ge=1)]
    """Mean length of responses."""

    cached: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Share of the prompt tokens that are found in the prefix cache."""

    ttft_ms: Annotated[float, Meta(gt=0)] = 700.0
    """Objective for the 99th percentile of the time to first token."""

    tpot_ms: Annotated[float, Meta(gt=0)] = 40.0
    """Objective for the mean time per further token."""


class LaunchDisaggregated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engines of a proxy that `trtllm-serve disaggregated` starts. The proxy does the handshake, and the router
    knows only the proxy."""

    context: Annotated[tuple[str, ...], Meta(min_length=1)]
    """URLs of the engines that compute prompts."""

    generation: Annotated[tuple[str, ...], Meta(min_length=1)]
    """URLs of the engines that generate responses."""


class LaunchConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the engines of one pool are started. A value of 0, empty or `auto` is derived, and the reason is printed."""

    model: Annotated[str, Meta(min_length=1)]
    """The model's folder on the engines' machines, its name on the Hub, or for llama.cpp a GGUF file. If the folder is
    also readable here, its config.json provides the model's shape and the number format of its weights."""

    gpu: Literal["", "a100", "h100", "h200", "b200"] = ""
    """Type of the GPUs. Empty: another type, or no GPU. Then nothing is derived: the engine chooses the values that
    depend on the GPU, and only the values that are set here are passed on. TensorRT-LLM and the embedded engine need a
    GPU."""

    shape: str = ""
    """Shape of the model if `model` cannot be read here: the name of a known shape (`llama-70b`), or a folder with the
    model's config.json."""

    gpus_per_node: Annotated[int, Meta(ge=0, le=16)] = 0
    """Number of GPUs that NVLink connects in one machine; 0 means the number that machines with this GPU usually have.
    """

    weights: Literal["auto", "bf16", "fp8", "nvfp4"] = "auto"
    """Number format of the weights. `auto`: the format in the model's folder; if it cannot be read, `fp8` on GPUs that
    compute it."""

    kv_dtype: Literal["auto", "bf16", "fp8"] = "auto"
    """Number format of keys and values. `auto`: `fp8` with `fp8` and `nvfp4` weights."""

    attention: Literal["auto", "fa3", "flashinfer", "triton"] = "auto"
    """Attention kernels. `auto`: `fa3` on Hopper, otherwise `flashinfer`; TensorRT-LLM uses its own."""

    memory_fraction: Annotated[float, Meta(gt=0.1, le=0.98)] = MEMORY_FRACTION
    """Share of the GPUs' memory for weights, draft weights, keys and values. The rest is for activations and the
    runtime."""

    chunk_tokens: Annotated[int, Meta(ge=0, le=262_144)] = 0
    """Prompt tokens per step; 0 means as many as fill the GPU."""

    max_running: Annotated[int, Meta(ge=0, le=4096)] = 0
    """Maximum number of concurrent requests; 0 means one step below the knee for `workload`, or without a workload as
    many as fit in memory."""

    context_tokens: Annotated[int, Meta(ge=0)] = 0
    """Maximum length of prompt and response together; 0 means the limit of the model that the pool serves."""

    workload: LaunchWorkload | None = None
    """The load and the objectives of the pool."""

    speculation: LaunchSpeculation | None = None
    """Speculative decoding. Set `speculation = true` for replicas that are started with it."""

    transfer_backend: str = "nixl"
    """Backend that transfers keys and values from prefill to decode engines, under the engine's own name."""

    disaggregated: LaunchDisaggregated | None = None
    """Prefill/decode pairs for which the pool's replica is the proxy. Driver `tensorrt_llm` only; for SGLang, a pair is
    two pools with a `role` each."""

    priorities: bool = True
    """Whether the engine orders waiting requests by priority, if it supports priorities."""

    adapter_rank: Literal[8, 16, 32, 64, 128, 256] = 64
    """Maximum rank of LoRA adapters, if the pool has `max_adapters`. Engines reserve memory of this size for each
    adapter."""

    version: str = ""
    """Release of the engine. Empty: the release whose options rendered commands are checked against."""

    host: str = ""
    """Address to listen on. Empty: the host of the replica's URL."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Port to listen on; 0 means the port of the replica's URL."""

    folder: Annotated[str, Meta(pattern=r"^/.*$")] = "/etc/slipstream/engines"
    """Folder for rendered files on the engines' machines."""

    program: str = ""
    """The engine's executable, such as `/opt/sglang/bin/python3` or `/opt/vllm/bin/vllm`. Empty: the one on the PATH.
    """

    environment: dict[VariableName, str] = {}
    """Environment variables of the engine, such as `{ VLLM_CPU_KVCACHE_SPACE = "8" }`."""

    extra_arguments: tuple[str, ...] = ()
    """Additional command-line arguments, in the engine's own syntax. An argument that a setting already produces must
    not be repeated here."""
