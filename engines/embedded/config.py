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
    """Maximum number of tokens computed in one step, over all sequences. Running sequences come first. Prompts get the
    rest, within the limit of `pause_ms`."""

    pause_ms: Annotated[float, Meta(gt=0)] = 100.0
    """Longest time between two tokens of a running stream while prompts arrive. A step computes as many prompt tokens
    as fit into this time by the measured cost of a token, and at least 16. If generation alone takes longer, no
    sequence starts beyond the eighth. Set it to the clients' objective for gaps."""

    max_running: Annotated[int, Meta(ge=1, le=1024)] = 64
    """Maximum number of sequences (choices) that run at once. Further ones are queued."""

    max_queued: Fixed[Annotated[int, Meta(ge=0)]] = 512
    """Maximum number of queued sequences. Further requests are refused with 503."""

    output_reserve: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Share of a request's max_tokens for which memory is reserved when it starts. With 1, memory never runs out while
    only one organization's requests run. A lower value runs more requests at once. When pages run out, requests of the
    organization that holds the most pages return to the queue, the most recent first, and are computed again."""

    ageing_s: Fixed[Annotated[float, Meta(gt=0)]] = 10.0
    """The waiting time that counts as one level of `priority`: requests of priority 2 can overtake one of priority 0
    for at most twice this time. It is also the time for which later requests can overtake one that does not fit."""


class KVConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory for keys and values."""

    budget_bytes: Annotated[int, Meta(ge=1)] | None = None
    """Bytes for all pages. One token takes 2 * layers * kv heads * head dim * bytes per element; with 8 bits, it takes
    2 * layers * kv heads * (head dim + 2). Unset: a quarter of the memory that is free when the engine starts (within a
    container's limit), but at most what `max_running` requests of maximum length use. The log shows the value. Pages
    take no memory until they are used."""

    cached_bytes: Annotated[int, Meta(ge=0)] | None = None
    """Bytes of the budget that prefixes of finished requests may keep. The least recently used prefixes are evicted
    first. Unset: the whole budget. Pages take no memory until they are used, so a small value keeps an engine small
    that has little load. `up` sets 32 MiB for the chat model that it fetches."""

    page_tokens: Fixed[Annotated[int, Meta(ge=1, le=256)]] = 16
    """Tokens per page."""

    dtype: Literal["auto", "fp8", "int8"] = "auto"
    """Number format of keys and values. auto: the model's format. fp8 (E4M3), int8: 8 bits with a scale for each token
    and head. The budget then holds nearly twice as many tokens as with bfloat16, and nearly four times as many as with
    float32. Such a model is computed by PyTorch's operations instead of the native kernels, which is slower on a CPU.
    """

    def token_bytes(self, vectors: int, head_dim: int, number_bytes: int) -> int:
        """Bytes per token. vectors: keys and values of all layers and heads; number_bytes: size of a number."""
        return vectors * (head_dim * number_bytes if self.dtype == "auto" else head_dim + KV_SCALE_BYTES)


class KVEventsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Publication of cached prefixes, in SGLang's format over ZeroMQ."""

    endpoint: str = ""
    """Endpoint for publishing, such as `tcp://127.0.0.1:5557`. Empty: the engine publishes no events. `*` as the port
    selects a free one; `up` selects one for each of its engines and passes it to the router."""

    replay_endpoint: str = ""
    """Endpoint that repeats missed messages, in the same form. Empty: none."""

    topic: Fixed[str] = ""
    """First frame of every message."""

    replay_messages: Fixed[Annotated[int, Meta(ge=1)]] = 10_000
    """Number of most recent messages kept for replay."""

    high_water_messages: Fixed[Annotated[int, Meta(ge=1)]] = 100_000
    """Number of messages that a slow subscriber may lag behind before it loses some."""


class GrammarConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on the output formats of requests. A format costs memory, and time in each step."""

    max_schema_bytes: Fixed[Annotated[int, Meta(ge=1)]] = 65_536
    """Maximum size of a JSON schema, or of all tool schemas of a request together."""

    max_schema_depth: Fixed[Annotated[int, Meta(ge=1, le=200)]] = 64
    """Maximum nesting depth of a schema."""

    max_regex_bytes: Fixed[Annotated[int, Meta(ge=1)]] = 4_096
    """Maximum size of a regular expression."""

    max_grammar_bytes: Fixed[Annotated[int, Meta(ge=1)]] = 65_536
    """Maximum size of an EBNF grammar."""

    compile_timeout_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 2.0
    """Time limit for compiling a grammar. A request whose grammar exceeds it is refused. A grammar is compiled twice,
    first in a process that can be stopped and then in the engine, so a request waits for at most about twice this time.
    """

    compile_bytes: Fixed[Annotated[int, Meta(ge=16 * 1024 * 1024)]] = 1024 * 1024 * 1024
    """Memory limit for compiling a grammar."""

    compile_processes: Annotated[int, Meta(ge=1, le=64)] = 2
    """Processes that test-compile clients' grammars, each for one organization at a time. With two or more, one
    organization's costly grammars leave a process to the others. Each process holds the vocabulary, which takes 40 MB
    or more."""

    compiles_waiting: Fixed[Annotated[int, Meta(ge=1)]] = 32
    """Maximum number of one organization's grammars that wait to be compiled. Further requests are refused with 429."""

    compile_wait_s: Fixed[Annotated[float, Meta(gt=0)]] = 10.0
    """Longest wait for a compilation to start. A request that waits longer is refused with 503."""

    kept: Annotated[int, Meta(ge=1)] = 64
    """Compiled grammars cached for later requests. The organization with the most cached grammars is evicted from
    first."""


class LoraConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """LoRA adapters in PEFT's format, which the engine loads and unloads while it serves."""

    max_loaded: Annotated[int, Meta(ge=0, le=1024)] = 8
    """Maximum number of loaded adapters; 0 allows none. An adapter's weights take memory in addition to the model's:
    about 2 * rank * (in + out) bytes for each adapted projection in bfloat16, and twice that if generated tokens are
    computed in float32. The log shows each adapter's size."""

    max_rank: Annotated[int, Meta(ge=1, le=1024)] = 64
    """Maximum rank of an adapter."""

    root: str = ""
    """Folder that must contain all adapter files after links are resolved. Other files are refused. Empty: an adapter
    may be in any folder, with its files in that folder."""


class Fp8Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulated FP8, for evaluating a model before a GPU serves it. The head and the embedding are never rounded."""

    weights: Literal["tensor", "channel"] = "channel"
    """`channel`: one scale for each output channel. `tensor`: one scale for a layer's weights."""

    activations: Literal["none", "token", "tensor"] = "token"
    """`none`: not rounded. `token`: one scale per token, computed during inference. `tensor`: one scale per layer, from
    a calibration."""

    calibration: str = ""
    """File with each layer's largest input, for `activations = "tensor"`."""

    keep: tuple[str, ...] = ()
    """Layers that are not rounded, such as `layers.3.down` or `layers.0.*`."""


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine process, with one model and one port."""

    model: str = ""
    """The model's folder (config.json, safetensors, tokenizer.json), or its GGUF file."""

    name: str = ""
    """The model's name in requests. Empty: the name of the folder or file."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 30000
    """TCP port. 0 lets the system choose one, which the log shows."""

    metrics: MetricsConfig = MetricsConfig()
    """Content of `/metrics` on the engine's port for readers without the token."""

    threads: Annotated[int, Meta(ge=1, le=256)] | Literal["auto"] = "auto"
    """CPU threads for the model. auto: all physical cores that the process may use; `up` divides them among the engines
    that it starts. The native kernels compute the same bits with any number of threads."""

    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Device of the model. auto: a CUDA GPU if there is one, otherwise the CPU."""

    cuda_graphs: Fixed[bool] = True
    """On a GPU, replay recorded steps when every running sequence generates one token."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of weights and activations. auto: bfloat16 if the checkpoint uses it and the CPU supports it
    natively, otherwise float32."""

    kernels: Literal["auto", "torch"] = "auto"
    """Implementation of the layers on a CPU. auto: the native kernels if the number format is bfloat16 and they support
    the model's shape. Compiling them makes the first start some seconds longer. torch: PyTorch's operations."""

    quantization: Literal["auto", "none", "int8", "fp8"] = "auto"
    """Storage of the weights. auto: int8 on a CPU for a GGUF file whose weights have 8 bits or fewer, unless `dtype` is
    float32; otherwise none. int8: 8-bit weights and bf16 activations, with the same results for every batch, in half
    the memory. With the native kernels, int8 is a fifth to a half faster for one stream and equally fast for many; with
    PyTorch, it is slower. fp8: simulated and slow, only for measuring quality."""

    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    """Sampling temperature of requests that set none. Unset: the model's own (`generation_config.json`), or 1."""

    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Nucleus sampling of requests that set no `top_p`. Unset: the model's own (`generation_config.json`), or 1."""

    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    """Frequency penalty of requests that set neither a penalty nor a temperature. Unset: 0. For the chat model that it
    fetches, `up` uses 0.2, because the model otherwise repeats a phrase endlessly in some answers."""

    context_tokens: Annotated[int, Meta(ge=0)] = 0
    """Maximum length of prompt and output together; 0 means the model's own limit."""

    max_body_bytes: Fixed[Annotated[int, Meta(ge=1024)]] = 16 * 1024 * 1024
    """Maximum size of a request body."""

    max_choices: Fixed[Annotated[int, Meta(ge=1)]] = 128
    """Maximum number of choices (n times prompts) in a request."""

    drain_s: Fixed[Annotated[float, Meta(ge=0)]] = 30.0
    """Time after SIGTERM in which running requests may finish before they are aborted."""

    usage_history: Fixed[Annotated[int, Meta(ge=0)]] = 20_000
    """Number of finished requests whose usage can still be read by id."""

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
