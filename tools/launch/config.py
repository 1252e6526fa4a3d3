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
    """Drafts of the next tokens, which the model checks several at a time."""

    algorithm: Literal["eagle3", "eagle", "ngram"] = "eagle3"
    """eagle3 and eagle: a small head that was trained for this very model. ngram: what followed the same tokens
    before."""

    draft_model: str = ""
    """The head's folder on the engines' machines, for eagle3 and eagle."""

    steps: Annotated[int, Meta(ge=0, le=15)] = 0
    """Most tokens drafted ahead; 0: as many as pay most for one stream alone."""

    topk: Annotated[int, Meta(ge=1, le=16)] = 1
    """Drafts kept after each token: 1 is a chain, more is a tree (SGLang, and TensorRT-LLM from 1.3)."""

    draft_tokens: Annotated[int, Meta(ge=0, le=256)] = 0
    """Tokens checked at once, for trees; 0: all of a chain and the one behind it."""

    adaptive: bool = True
    """Fewer drafts the larger the batch, none where they cost more than they save: SGLang's adaptive table, the
    schedules of TensorRT-LLM and vLLM, the embedded engine's own rule."""

    acceptance: Annotated[float, Meta(gt=0, lt=1)] = 0.7
    """Part of drafts that the model keeps, where those before them were kept; decides what pays. The metrics of an
    engine that runs tell its own."""


class LaunchWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a pool is asked and what it promises, for the largest batch and the number of GPUs."""

    prompt_tokens: Annotated[float, Meta(ge=1)]
    """Mean of the prompts."""

    output_tokens: Annotated[float, Meta(ge=1)]
    """Mean of the answers."""

    cached: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Part of the prompt tokens that the prefix cache answers."""

    ttft_ms: Annotated[float, Meta(gt=0)] = 700.0
    """Promised time to the first token, to 99 of 100."""

    tpot_ms: Annotated[float, Meta(gt=0)] = 40.0
    """Promised time per token behind it, on average."""


class LaunchDisaggregated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engines behind a front that `trtllm-serve disaggregated` starts: it does the handshake, and the router knows
    the front alone."""

    context: Annotated[tuple[str, ...], Meta(min_length=1)]
    """URLs of the engines that compute prompts."""

    generation: Annotated[tuple[str, ...], Meta(min_length=1)]
    """URLs of the engines that write answers."""


class LaunchConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the engines of one pool are started. What is 0, empty or auto is derived, and the reason printed."""

    model: Annotated[str, Meta(min_length=1)]
    """The model's folder on the engines' machines, its name on the Hub, or for llama.cpp a GGUF file. Where it is
    readable here as well, its config.json tells its shape and what its weights are kept in."""

    gpu: Literal["", "a100", "h100", "h200", "b200"] = ""
    """The GPU. Empty: another GPU, or none. Nothing is derived then: the engine chooses what depends on the GPU, and
    what is set here is passed on. TensorRT-LLM and the embedded engine need a GPU."""

    shape: str = ""
    """Where `model` cannot be read here: the name of a modelled shape (`llama-70b`), or a folder with its
    config.json."""

    gpus_per_node: Annotated[int, Meta(ge=0, le=16)] = 0
    """GPUs of one machine that NVLink joins; 0: as many as such machines have."""

    weights: Literal["auto", "bf16", "fp8", "nvfp4"] = "auto"
    """Number format of the weights. auto: as the folder says; where it cannot be read, fp8 on GPUs that compute it."""

    kv_dtype: Literal["auto", "bf16", "fp8"] = "auto"
    """Number format of keys and values. auto: fp8 beside fp8 and nvfp4 weights."""

    attention: Literal["auto", "fa3", "flashinfer", "triton"] = "auto"
    """Attention kernels. auto: fa3 on Hopper, else flashinfer; TensorRT-LLM's own there."""

    memory_fraction: Annotated[float, Meta(gt=0.1, le=0.98)] = MEMORY_FRACTION
    """Part of the GPUs' memory for weights, draft weights, keys and values; the rest is for activations and the
    runtime."""

    chunk_tokens: Annotated[int, Meta(ge=0, le=262_144)] = 0
    """Prompt tokens of one step; 0: as many as fill the GPU."""

    max_running: Annotated[int, Meta(ge=0, le=4096)] = 0
    """Requests that run at once; 0: one notch under the knee that `workload` has, else what memory holds."""

    context_tokens: Annotated[int, Meta(ge=0)] = 0
    """Longest prompt and answer together; 0: that of the model the pool serves."""

    workload: LaunchWorkload | None = None
    """What is asked and promised."""

    speculation: LaunchSpeculation | None = None
    """Speculative decoding; replicas that are started with it say `speculation = true`."""

    transfer_backend: str = "nixl"
    """What moves keys and values from prefill to decode engines, as the engine calls it."""

    disaggregated: LaunchDisaggregated | None = None
    """Driver `tensorrt_llm` only: the pool's replica is the front of prefill/decode pairs. SGLang's pairs are two pools
    with a `role` each."""

    priorities: bool = True
    """Waiting requests are ordered by priority, where the engine knows any."""

    adapter_rank: Literal[8, 16, 32, 64, 128, 256] = 64
    """Largest rank of LoRA adapters, where the pool has `max_adapters`: engines keep memory of this size for each."""

    version: str = ""
    """The engine's release; empty: the one that commands are checked against."""

    host: str = ""
    """Address to listen on; empty: that of the replica's URL."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Port to listen on; 0: that of the replica's URL."""

    folder: Annotated[str, Meta(pattern=r"^/.*$")] = "/etc/slipstream/engines"
    """Where rendered files are put on the engines' machines."""

    program: str = ""
    """The engine's executable, such as `/opt/sglang/bin/python3` or `/opt/vllm/bin/vllm`. Empty: found on the
    PATH."""

    environment: dict[VariableName, str] = {}
    """Environment variables to start it with, such as `{ VLLM_CPU_KVCACHE_SPACE = "8" }`."""

    extra_arguments: tuple[str, ...] = ()
    """Further words of the command line, as the engine writes them. What a setting writes is not repeated here."""
