"""Finds settings that conflict in every dialect, from the founding documents' matrix of interactions.

The documents mark a conflict with `-`; it is refused where it cannot pay. Of the pairs marked `++`, one is here, FP8
weights with FA3: its absence is a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import NamedTuple

from contracts.errors import ConfigError
from engines.performance.catalog import GPUS
from engines.performance.precision import Precision
from tools.launch.config import LaunchConfig
from tools.launch.sizing import HOPPER
from tools.launch.target import Target

UNLIKELY_SHARE = 8
"""Without a workload, requests are assumed to need at least the context divided by this."""

CHAINS_ONLY = MappingProxyType({"vllm": "vLLM", "embedded": "the embedded engine"})
"""Drivers whose engines draft chains even if a tree is requested. TensorRT-LLM's support depends on its release."""

NAMED_GPU = re.compile(rf"(?:^|[^a-z0-9]|[0-9]x)({'|'.join(GPUS)})(?![0-9])")
"""Matches a modelled GPU in free text, such as `H100`, `8xH100` or `H200x2`; a GB200 is another GPU."""


class SettingsConflict(ConfigError):
    """Two settings that do not work together."""


class Interaction(NamedTuple):
    """A pair of settings, and the sentence that explains their conflict."""

    first: str
    second: str
    """`first` and `second` introduce a note, which names no setting with its value."""
    setting: str
    """The setting of `pools[].launch` to change."""
    collides: Callable[[Target], str]
    """Returns the sentence, or an empty text if the settings do not conflict."""
    refused: bool = True


def require_compatible(target: Target) -> None:
    """Raises SettingsConflict."""
    for each in INTERACTIONS:
        if each.refused and (sentence := each.collides(target)):
            field = f"{target.field}.{each.setting}"
            raise SettingsConflict(f"{field}: {_value(target, each.setting)}; {sentence}", param=field)


def notes(target: Target) -> Iterator[str]:
    """Combinations that are allowed but worth knowing."""
    for each in INTERACTIONS:
        if not each.refused and (sentence := each.collides(target)):
            yield f"{each.first} and {each.second}: {sentence}"


def _value(target: Target, setting: str) -> str:
    """The setting's value as a settings file writes it; `none` if it is empty."""
    value: object = target.launch
    for name in setting.split("."):
        value = getattr(value, name)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value) or "none"


def _other_gpu(target: Target) -> str:
    hardware, where = target.pool.hardware, f"pools.{target.pool.name}.hardware"
    if target.replica.hardware:
        hardware, where = target.replica.hardware, f"pools.{target.pool.name}.replicas.{target.replica.id}.hardware"
    named = set(NAMED_GPU.findall(hardware.lower()))
    if len(named) != 1 or target.launch.gpu in named:
        return ""
    (gpu,) = named
    return (
        f"{where} is {hardware!r}, and memory, batch and kernels are computed for {GPUS[target.launch.gpu].name}; set "
        f'gpu = "{gpu}", or correct the other'
    )


def _unordered_priorities(target: Target) -> str:
    if target.launch.priorities or not target.pool.request_priorities or target.pool.driver != "tensorrt_llm":
        return ""
    return (
        "the pool has request_priorities = true, so that the gateway sends them and the engine is to order by them; "
        "leave priorities out, or set the pool's request_priorities = false"
    )


def _small_chunks(target: Target) -> str:
    chunk, fills = target.sizing.chunk_tokens.value, target.sizing.node.gpu.chunk_tokens
    if target.pool.role != "prefill" or chunk >= fills:
        return ""
    context = target.sizing.context_tokens.value
    return (
        "no stream waits for a prompt on a prefill engine, and each chunk reads all earlier keys again: a prompt "
        f"of {context:,} tokens is {math.ceil(context / chunk)} chunks of {chunk:,} instead of "
        f"{math.ceil(context / fills)} that fill the GPU; set at least {fills:,}, or 0"
    )


def _chunk_of_decode(target: Target) -> str:
    if target.pool.role != "decode" or not target.launch.chunk_tokens:
        return ""
    return "a decode engine receives computed prompts and computes no chunk; set it for the prefill pool, and 0 here"


def _cache_of_decode(target: Target) -> str:
    if target.pool.role != "decode" or target.pool.driver != "sglang":
        return ""
    return "SGLang keeps no prefixes on a decode engine; only the prefill engine saves a part of a prompt"


def _fp8_cache_without_units(target: Target) -> str:
    if target.sizing.kv_dtype.value != "fp8" or target.sizing.node.gpu.fp8_flops:
        return ""
    return f"{target.sizing.node.gpu.name} has no units for FP8, and its kernels none to read e4m3; set bf16"


def _tree_and_engine(target: Target) -> str:
    launch = target.launch.speculation
    if launch is None or target.sizing.drafts is None or launch.topk == 1 or target.pool.driver not in CHAINS_ONLY:
        return ""
    return f"{CHAINS_ONLY[target.pool.driver]} drafts chains only; set topk = 1"


def _tree_and_table(target: Target) -> str:
    launch = target.launch.speculation
    if launch is None or target.sizing.drafts is None or not launch.adaptive:
        return ""
    if launch.algorithm == "ngram" and target.pool.driver == "sglang":
        return "SGLang adapts the drafts of heads only, and would continue with a fixed number; set adaptive = false"
    if launch.topk == 1:
        return ""
    return "the number of drafts is adapted for chains only; set topk = 1, or adaptive = false"


def _table_and_adapters(target: Target) -> str:
    launch = target.launch.speculation
    if launch is None or target.sizing.drafts is None or target.pool.driver != "sglang":
        return ""
    if not launch.adaptive or not target.pool.max_adapters:
        return ""
    return "SGLang does not start with both; set adaptive = false, or the pool's max_adapters = 0"


def _tree_size(target: Target) -> str:
    launch = target.launch.speculation
    if launch is None or target.sizing.drafts is None:
        return ""
    if launch.topk > 1 and not launch.draft_tokens:
        return "the number of tree tokens checked at once is missing; set it, 8 for five steps of four for example"
    chain = target.sizing.drafts.steps.value + 1
    if launch.topk == 1 and launch.algorithm != "ngram" and launch.draft_tokens not in (0, chain):
        return f"a chain of {chain - 1} drafts is checked as {chain} tokens; set draft_tokens = 0, or topk above 1"
    return ""


def _head_is_named(target: Target) -> str:
    launch = target.launch.speculation
    if launch is None or target.sizing.drafts is None:
        return ""
    if launch.algorithm == "ngram":
        return "n-grams need no head; remove it" if launch.draft_model else ""
    return (
        ""
        if launch.draft_model
        else f"{launch.algorithm} needs a head that was trained for this model; name its folder"
    )


def _fp8_without_fa3(target: Target) -> str:
    sizing = target.sizing
    if target.pool.driver == "tensorrt_llm" or sizing.node.gpu.name not in HOPPER:
        return ""
    if sizing.weights.value is not Precision.FP8 or sizing.attention.value == "fa3":
        return ""
    return f"FlashAttention-3 is fastest on {sizing.node.gpu.name}, and {sizing.attention.value} is requested"


def _unscaled_cache(target: Target) -> str:
    checkpoint = target.sizing.checkpoint
    if target.sizing.kv_dtype.value != "fp8" or checkpoint is None or checkpoint.kv_scales:
        return ""
    return f"{target.launch.model} has no scales for keys and values, so that 1.0 is used: judge its quality first"


def _other_concurrency(target: Target) -> str:
    limit, running = target.pool.max_concurrency, target.sizing.max_running.value
    if limit in (0, running):
        return ""
    where = "the rest waits in the engine, which ignores shares" if limit > running else "the rest is never used"
    return f"the router gives a replica {limit} requests at a time, and it runs {running}: {where}"


def _more_than_memory(target: Target) -> str:
    running, tokens = target.sizing.max_running.value, target.sizing.node.memory.kv_tokens
    workload = target.launch.workload
    if workload is None:
        # without a workload, take a size that hardly any request is below
        needed, basis = target.sizing.context_tokens.value / UNLIKELY_SHARE, f"an {UNLIKELY_SHARE}th of the context"
    else:
        needed, basis = workload.prompt_tokens * (1 - workload.cached) + workload.output_tokens, "what a request needs"
    if running * needed <= tokens:
        return ""
    return (
        f"{running:,} at once have {tokens // running:,} tokens of keys and values each, and {basis} is {needed:,.0f}: "
        "the engine puts some off, or drops what it has begun and computes it again; "
        f"{max(int(tokens / needed), 1):,} fit"
    )


INTERACTIONS = (
    Interaction("The GPU", "the hardware", "gpu", _other_gpu),
    Interaction("Priorities", "the gateway's", "priorities", _unordered_priorities),
    Interaction("Disaggregation", "chunked prefill", "chunk_tokens", _small_chunks),
    Interaction("Disaggregation", "chunked prefill", "chunk_tokens", _chunk_of_decode),
    Interaction("An FP8 cache", "the GPU", "kv_dtype", _fp8_cache_without_units),
    Interaction("A tree of drafts", "the engine", "speculation.topk", _tree_and_engine),
    Interaction("Speculation", "its table", "speculation.adaptive", _tree_and_table),
    Interaction("An adaptive table", "LoRA adapters", "speculation.adaptive", _table_and_adapters),
    Interaction("Speculation", "its tree", "speculation.draft_tokens", _tree_size),
    Interaction("Speculation", "its head", "speculation.draft_model", _head_is_named),
    Interaction("Disaggregation", "prefix caching", "role", _cache_of_decode, refused=False),
    Interaction("max_concurrency", "the largest batch", "max_running", _other_concurrency, refused=False),
    Interaction("The largest batch", "memory", "max_running", _more_than_memory, refused=False),
    Interaction("FP8 weights", "attention", "attention", _fp8_without_fa3, refused=False),
    Interaction("An FP8 cache", "the checkpoint", "kv_dtype", _unscaled_cache, refused=False),
)


def further_options(launch: LaunchConfig) -> dict[str, str]:
    """The options among `extra_arguments`, each with the word after it or after its `=`; empty if it has none."""
    words, options = launch.extra_arguments, {}
    for at, word in enumerate(words):
        if word.startswith("-"):
            name, joined, value = word.partition("=")
            following = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("-") else ""
            options[name] = value if joined else following
    return options
