"""Settings of the embedded engine."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed
from contracts.metrics import MetricsConfig
from speculative.config import SpeculationConfig

KV_SCALE_BYTES = 2
"""Bytes of the scale of a head's key or value in 8 bits."""


class SchedulerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on running and waiting requests."""

    max_batch_tokens: Annotated[int, Meta(ge=1)] = 512
    """Most tokens computed in one step, over all sequences. Running sequences come first; prompts are cut to the rest,
    and to what `pause_ms` leaves."""

    pause_ms: Annotated[float, Meta(gt=0)] = 100.0
    """Longest time between two tokens of a running stream while prompts arrive: a step computes as many tokens of
    prompts as fit into it, by the measured cost of a token, and at least 16. Where generation alone takes longer, no
    further sequences start beyond the eighth. Give the objective that clients have for gaps."""

    max_running: Annotated[int, Meta(ge=1, le=1024)] = 64
    """Sequences (choices) that run at once; the rest queue."""

    max_queued: Fixed[Annotated[int, Meta(ge=0)]] = 512
    """Sequences that may wait; further requests are refused with 503."""

    output_reserve: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Share of a request's max_tokens for which memory is reserved when it starts. 1: memory never runs out while one
    organization's requests run. Lower values run more requests at once; when pages run out, requests of the
    organization that holds the most return to the queue, the last in line first, and are computed again."""

    ageing_s: Fixed[Annotated[float, Meta(gt=0)]] = 10.0
    """Waiting this long is worth one step of `priority`: a request of priority 0 is overtaken by one of priority 2 for
    at most twice this time. Also the time for which later requests may overtake one that does not fit."""


class KVConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory for keys and values."""

    budget_bytes: Annotated[int, Meta(ge=1)] | None = None
    """Bytes for all pages. One token takes 2 * layers * kv heads * head dim * bytes per element; in 8 bits
    2 * layers * kv heads * (head dim + 2). Unset: a quarter of the memory that is free when the engine starts (of a
    container's, where it has a limit), and no more than `max_running` requests of the longest kind fill; the log shows
    it. Memory that nothing was written to is not taken."""

    cached_bytes: Annotated[int, Meta(ge=0)] | None = None
    """Bytes of the budget that prefixes of ended requests may keep, the least recently used leaving first. Unset: all
    of it. Memory that nothing was written to is the system's: a small value keeps an engine small that computes little
    at once. `up` sets 32 MiB for the chat model that it fetches."""

    page_tokens: Fixed[Annotated[int, Meta(ge=1, le=256)]] = 16
    """Tokens in one page."""

    dtype: Literal["auto", "fp8", "int8"] = "auto"
    """Number format of keys and values. auto: the model's. fp8 (E4M3), int8: 8 bits, with a scale for every token and
    head, so that the budget holds nearly twice as many tokens as in bfloat16 and nearly four times as many as in
    float32. PyTorch's operations compute such a model instead of the native kernels: slower on a CPU."""

    def token_bytes(self, vectors: int, head_dim: int, number_bytes: int) -> int:
        """Bytes per token. vectors: keys and values of all layers and heads; number_bytes: size of a number."""
        return vectors * (head_dim * number_bytes if self.dtype == "auto" else head_dim + KV_SCALE_BYTES)


class KVEventsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Publication of the cached prefixes, in SGLang's format over ZeroMQ."""

    endpoint: str = ""
    """Endpoint to publish at, such as `tcp://127.0.0.1:5557`; empty: nothing is published. `*` as the port picks a free
    one: `up` chooses one for each of its engines, and passes it to the router."""

    replay_endpoint: str = ""
    """Endpoint that repeats missed messages, in the same form; empty: none."""

    topic: Fixed[str] = ""
    """First frame of every message."""

    replay_messages: Fixed[Annotated[int, Meta(ge=1)]] = 10_000
    """Newest messages kept for replay."""

    high_water_messages: Fixed[Annotated[int, Meta(ge=1)]] = 100_000
    """Messages that a slow subscriber may lag before it loses some."""


class GrammarConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on the output formats that requests demand, which cost memory, and time in every step."""

    max_schema_bytes: Fixed[Annotated[int, Meta(ge=1)]] = 65_536
    """A JSON schema, or the schemas of all tools of a request together."""

    max_schema_depth: Fixed[Annotated[int, Meta(ge=1, le=200)]] = 64
    """Levels of nesting in a schema."""

    max_regex_bytes: Fixed[Annotated[int, Meta(ge=1)]] = 4_096
    """A regular expression."""

    max_grammar_bytes: Fixed[Annotated[int, Meta(ge=1)]] = 65_536
    """A grammar in EBNF."""

    compile_timeout_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 2.0
    """Time limit for compiling one; beyond it the request is refused. A grammar is compiled twice, first in a process
    that can be stopped and then in the engine: a request waits for at most about twice this time."""

    compile_bytes: Fixed[Annotated[int, Meta(ge=16 * 1024 * 1024)]] = 1024 * 1024 * 1024
    """Memory limit for compiling one."""

    compile_processes: Annotated[int, Meta(ge=1, le=64)] = 2
    """Processes that try clients' grammars, each for one organization at a time. With two or more, one organization's
    costly grammars leave one free for the others. A process holds the vocabulary: 40 MB and more."""

    compiles_waiting: Fixed[Annotated[int, Meta(ge=1)]] = 32
    """Grammars of one organization that may wait to be compiled; further requests are refused with 429."""

    compile_wait_s: Fixed[Annotated[float, Meta(gt=0)]] = 10.0
    """A request that waits longer than this to be compiled is refused with 503."""

    kept: Annotated[int, Meta(ge=1)] = 64
    """Compiled grammars kept for repeated requests. The organization that keeps the most gives way first."""


class LoraConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Adapters in PEFT's format, loaded and unloaded while the engine serves."""

    max_loaded: Annotated[int, Meta(ge=0, le=1024)] = 8
    """Adapters held at once; 0: none can be loaded. Their weights come on top of the model's: about 2 * rank * (in +
    out) bytes for every adapted projection in bfloat16, twice that where generated tokens are computed in float32. The
    log shows the size of each."""

    max_rank: Annotated[int, Meta(ge=1, le=1024)] = 64
    """The largest rank of an adapter."""

    root: str = ""
    """Folder under which all files of adapters must lie, with links resolved; others are refused. Empty: an adapter may
    lie anywhere, with its files in its own folder."""


class Fp8Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulated FP8, to evaluate a model before a GPU serves it. The head and the embedding are never rounded."""

    weights: Literal["tensor", "channel"] = "channel"
    """One scale for a layer's weights, or one per output channel."""

    activations: Literal["none", "token", "tensor"] = "token"
    """Not rounded; one scale per token, computed on the fly; or one per layer, fixed by a calibration."""

    calibration: str = ""
    """The file with the largest input of every layer, for `activations = "tensor"`."""

    keep: tuple[str, ...] = ()
    """Layers that are not rounded, such as `layers.3.down` or `layers.0.*`."""


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine process, with one model and one port."""

    model: str = ""
    """The model's folder (config.json, safetensors, tokenizer.json), or its GGUF file."""

    name: str = ""
    """The model's name in requests; empty: the name of the folder or the file."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 30000
    """TCP port; 0 lets the system choose, and the log shows it."""

    metrics: MetricsConfig = MetricsConfig()
    """Content of `/metrics` on the engine's port when it is read without the token."""

    threads: Annotated[int, Meta(ge=1, le=256)] | Literal["auto"] = "auto"
    """CPU threads for the model. auto: all physical cores that the process may use; `up` divides them between the
    engines that it starts. The native kernels compute the same bits with any number."""

    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Device of the model. auto: a CUDA GPU where there is one."""

    cuda_graphs: Fixed[bool] = True
    """On a GPU, replay recorded steps where every running sequence generates one token."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of weights and activations. auto: bfloat16 where the checkpoint has it and the CPU computes it
    natively, else float32."""

    kernels: Literal["auto", "torch"] = "auto"
    """Implementation of the layers on a CPU. auto: the native kernels, where the number format is bfloat16 and
    they support the model's shape; compiling them makes the first start seconds longer. torch: PyTorch's operations."""

    quantization: Literal["auto", "none", "int8", "fp8"] = "auto"
    """Storage of the weights. auto: int8 for a GGUF file whose weights have 8 bits or fewer already, on a CPU, unless
    `dtype` is float32; else none. int8: 8-bit weights, bf16 activations; exact under batching; half the memory. With
    the native kernels it is a fifth to a half faster for one stream and equally fast for many; with PyTorch it is
    slower. fp8: simulated, slow, for measuring quality only."""

    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    """Sampling temperature of requests that give none. Unset: the model's own (`generation_config.json`), else 1."""

    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Nucleus sampling of requests that give no `top_p`. Unset: the model's own (`generation_config.json`), else 1."""

    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    """Frequency penalty of requests that give neither one nor a temperature. Unset: 0; `up` then sets 0.2 for the chat
    model that it fetches, which otherwise repeats a phrase without end in some answers."""

    context_tokens: Annotated[int, Meta(ge=0)] = 0
    """Longest prompt and output together; 0: the model's own limit."""

    max_body_bytes: Fixed[Annotated[int, Meta(ge=1024)]] = 16 * 1024 * 1024
    """Largest request body."""

    max_choices: Fixed[Annotated[int, Meta(ge=1)]] = 128
    """Most choices (n times prompts) in one request."""

    drain_s: Fixed[Annotated[float, Meta(ge=0)]] = 30.0
    """After SIGTERM, how long running requests may take to finish before they are aborted."""

    usage_history: Fixed[Annotated[int, Meta(ge=0)]] = 20_000
    """Finished requests whose usage can still be read by id."""

    scheduler: SchedulerConfig = SchedulerConfig()
    """Batching and admission."""

    kv: KVConfig = KVConfig()
    """Key and value memory."""

    kv_events: KVEventsConfig = KVEventsConfig()
    """Publication of the cached prefixes to routers."""

    speculation: SpeculationConfig = SpeculationConfig()
    """Speculative decoding."""

    grammar: GrammarConfig = GrammarConfig()
    """Guided output."""

    lora: LoraConfig = LoraConfig()
    """LoRA adapters."""

    fp8: Fp8Config = Fp8Config()
    """The rounding of `quantization = "fp8"`."""
