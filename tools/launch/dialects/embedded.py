"""The embedded engine's dialect: `slipstream engine`, with environment variables for settings that have no option."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.errors import ConfigError
from engines.performance.precision import Precision
from tools.launch.sizing import Drafts
from tools.launch.spec import Argument, LaunchSpec, Variable
from tools.launch.target import Target, zmq_port

METHODS = {"eagle3": "eagle", "ngram": "ngram"}


def render(target: Target) -> LaunchSpec:
    """The command of one replica on a GPU. Raises ConfigError."""
    _require_possible(target)
    extra = tuple(Argument(word) for word in target.launch.extra_arguments)
    return LaunchSpec(
        replica=target.replica.id,
        pool=target.pool.name,
        engine="slipstream engine",
        speculation=target.sizing.drafts is not None,
        program=("slipstream", "engine"),
        arguments=(*_arguments(target), *extra),
        environment=tuple(_environment(target)),
        notes=(f"it requires the deployment's token: put a copy of {target.token_file} into its data folder",),
    )


def _arguments(target: Target) -> Iterator[Argument]:
    sizing = target.sizing
    yield Argument("--model", (target.launch.model,))
    yield Argument("--name", (target.model_name,), "the name in requests")
    yield Argument("--host", (target.host,), f"of {target.replica.url}")
    yield Argument("--port", (str(target.port),))
    yield Argument("--context-tokens", (str(sizing.context_tokens.value),), sizing.context_tokens.why)
    yield Argument("--speculation", (METHODS[sizing.drafts.config.algorithm] if sizing.drafts else "off",))
    yield Argument("--kv-budget-bytes", (str(int(sizing.node.memory.kv_bytes)),), sizing.memory.why)


def _environment(target: Target) -> Iterator[Variable]:
    sizing, replica = target.sizing, target.replica
    yield _setting("DEVICE", "cuda", f"one {sizing.node.gpu.name}")
    yield _setting("SCHEDULER__MAX_BATCH_TOKENS", str(sizing.chunk_tokens.value), sizing.chunk_tokens.why)
    yield _setting("SCHEDULER__MAX_RUNNING", str(sizing.max_running.value), sizing.max_running.why)
    if target.pool.max_adapters:
        yield _setting("LORA__MAX_LOADED", str(target.pool.max_adapters), "as many as the router sends it")
        yield _setting("LORA__MAX_RANK", str(target.launch.adapter_rank), "")
    if replica.kv_events:
        port = zmq_port(replica.kv_events, f"pools.{target.pool.name}.replicas.{replica.id}.kv_events")
        yield _setting("KV_EVENTS__ENDPOINT", f"tcp://*:{port}", "the router connects to it")
    if sizing.drafts is not None:
        yield from _speculation(sizing.drafts)


def _speculation(drafts: Drafts) -> Iterator[Variable]:
    if drafts.config.draft_model:
        yield _setting("SPECULATION__HEAD", drafts.config.draft_model, "")
    yield _setting("SPECULATION__MAX_DRAFTS", str(drafts.steps.value), drafts.steps.why)
    if not drafts.config.adaptive:
        yield _setting("SPECULATION__GOVERNED", "false", "as set: it drafts at every batch")


def _setting(name: str, value: str, why: str) -> Variable:
    return Variable(f"SLIPSTREAM_ENGINE__{name}", value, why)


def _require_possible(target: Target) -> None:
    field, sizing = target.field, target.sizing
    if sizing.tensor_parallel.value > 1:
        raise ConfigError(
            f"{field}.tensor_parallel: the embedded engine runs on one GPU, not {sizing.tensor_parallel.value}; use a "
            "smaller model, or another driver",
            param=f"{field}.tensor_parallel",
        )
    if sizing.weights.value is not Precision.BF16 or sizing.kv_dtype.value != "bf16":
        raise ConfigError(
            f"{field}.weights: on a GPU the embedded engine computes BF16 only; set weights and kv_dtype to bf16, or "
            "use another driver",
            param=f"{field}.weights",
        )
    if sizing.drafts is not None and sizing.drafts.config.algorithm not in METHODS:
        raise ConfigError(
            f"{field}.speculation.algorithm: the embedded engine reads heads of EAGLE-3 only; use eagle3 or ngram",
            param=f"{field}.speculation.algorithm",
        )
