"""SGLang's dialect: `python -m sglang.launch_server` with its options, and the table of its adaptive speculation.

The names are those of the release that `options/sglang.json` was read from; a test passes every command to SGLang's
own parser.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from contracts.desired_state import Pool
from contracts.errors import ConfigError
from engines.performance.precision import Precision
from tools.launch.checkpoint import MODELOPT, PLAIN
from tools.launch.config import MEMORY_FRACTION
from tools.launch.key import read_key, source
from tools.launch.matrix import SettingsConflict, further_options
from tools.launch.options.known import KnownOptions, known_options
from tools.launch.sizing import Drafts
from tools.launch.spec import Argument, LaunchFile, LaunchSpec
from tools.launch.target import Target, zmq_port

PROGRAM = ("python3", "-m", "sglang.launch_server")
KV_DTYPES = {"fp8": "fp8_e4m3", "bf16": "bf16"}
ALGORITHMS = {"eagle3": "EAGLE3", "eagle": "EAGLE", "ngram": "NGRAM"}
TRANSFER = "--disaggregation-transfer-backend"
ORDERS_WITH_PRIORITY = ("fcfs", "lof")
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The layers that adapters may change."""
EMA_ALPHA, DOWN_HYSTERESIS = 0.2, -0.25
"""SGLang's defaults for the adaptive table: how fast it follows the acceptance, and how slowly it drafts less."""


def render(target: Target) -> LaunchSpec:
    """The command of one replica. Raises ConfigError."""
    options = known_options("sglang", target.launch.version, f"{target.field}.version")
    _require_governed(target)
    options.require((TRANSFER, target.launch.transfer_backend), f"{target.field}.transfer_backend")
    arguments = tuple(_arguments(target))
    extra = tuple(Argument(word) for word in target.launch.extra_arguments)
    _require_extra(target, arguments, options)
    options.require([word for each in (*arguments, *extra) for word in each.words], f"{target.field}.extra_arguments")
    return LaunchSpec(
        replica=target.replica.id,
        pool=target.pool.name,
        engine=f"SGLang {options.version}",
        speculation=target.drafts is not None,
        program=PROGRAM,
        arguments=(*arguments, *extra),
        files=tuple(_files(target)),
        before=tuple(_before(target)),
        key_file=target.path("key.yaml") if read_key(target.pool, target.token_file) else "",
        notes=tuple(_notes(target)),
    )


def _arguments(target: Target) -> Iterator[Argument]:
    launch, replica = target.launch, target.replica
    yield Argument("--model-path", (launch.model,))
    yield Argument("--served-model-name", (target.model_name,), "the name in requests")
    yield Argument("--host", (target.host,), f"of {replica.url}")
    yield Argument("--port", (str(target.port),))
    if read_key(target.pool, target.token_file):
        yield Argument(
            "--config", (target.path("key.yaml"),), "the API key; as an option, every account could see it with ps"
        )
    yield from _of_gpu(target) if target.gpu_sizing is not None else _as_set(target)
    yield from _order(target)
    yield Argument("--enable-metrics", (), "load and counters for router and worker")
    yield Argument("--enable-cache-report", (), "cached tokens in the usage, which are billed at their own price")
    if replica.kv_events:
        yield Argument(
            "--kv-events-config", (_kv_events(target),), "with * the engine listens and the router connects to it"
        )
    yield from _pair(target)
    if target.pool.max_adapters:
        yield from _adapters(target)
    if target.drafts is not None:
        yield from _speculation(target, target.drafts)


def _of_gpu(target: Target) -> Iterator[Argument]:
    sizing = target.sizing
    yield Argument("--tp-size", (str(sizing.tensor_parallel.value),), sizing.tensor_parallel.why)
    if (quantization := _quantization(target)) is not None:
        yield quantization
    yield Argument("--kv-cache-dtype", (KV_DTYPES[sizing.kv_dtype.value],), sizing.kv_dtype.why)
    yield Argument("--attention-backend", (sizing.attention.value,), sizing.attention.why)
    yield Argument("--mem-fraction-static", (f"{sizing.memory.value:g}",), sizing.memory.why)
    yield Argument("--context-length", (str(target.context_tokens.value),), target.context_tokens.why)
    if target.pool.role != "decode":
        yield Argument("--chunked-prefill-size", (str(sizing.chunk_tokens.value),), sizing.chunk_tokens.why)
    yield Argument("--max-running-requests", (str(sizing.max_running.value),), sizing.max_running.why)


def _as_set(target: Target) -> Iterator[Argument]:
    """Without a GPU: SGLang chooses the rest."""
    launch = target.launch
    yield Argument("--context-length", (str(target.context_tokens.value),), target.context_tokens.why)
    if target.pool.tensor_parallel:
        yield Argument("--tp-size", (str(target.pool.tensor_parallel),))
    if launch.memory_fraction != MEMORY_FRACTION:
        yield Argument("--mem-fraction-static", (f"{launch.memory_fraction:g}",))
    if launch.max_running:
        yield Argument("--max-running-requests", (str(launch.max_running),))


def _adapters(target: Target) -> Iterator[Argument]:
    yield Argument("--enable-lora", (), "pools.max_adapters: adapters are loaded while it runs")
    yield Argument("--max-loaded-loras", (str(target.pool.max_adapters),), "as many as the router sends it")
    yield Argument("--max-loras-per-batch", (str(target.adapters_in_batch),), "computed at once")
    yield Argument("--max-lora-rank", (str(target.launch.adapter_rank),))
    yield Argument("--lora-target-modules", ADAPTED, "before any adapter is loaded")


def _quantization(target: Target) -> Argument | None:
    weights, found = target.sizing.weights.value, target.sizing.checkpoint
    if found is None or weights is Precision.BF16:
        return None  # SGLang reads the format of a folder that is not on this machine
    if found.toolchain == PLAIN:
        return Argument("--quantization", ("fp8",), "BF16 weights are rounded at the start, without calibration")
    if found.toolchain == MODELOPT:
        name = "modelopt_fp8" if weights is Precision.FP8 else "modelopt_fp4"
        return Argument("--quantization", (name,), "ModelOpt wrote the folder")
    return None


def _order(target: Target) -> Iterator[Argument]:
    if not target.launch.priorities:
        return
    yield Argument("--enable-priority-scheduling", (), "the gateway sends priorities; the higher is served first")
    yield Argument(
        "--default-priority-value", ("0",), "for requests without a priority: the middle of the gateway's range"
    )
    yield Argument(
        "--schedule-policy", ("fcfs",), "within a priority; SGLang sorts by longest prefix only without priorities"
    )


def _kv_events(target: Target) -> str:
    replica, field = target.replica, f"pools.{target.pool.name}.replicas.{target.replica.id}"
    config = {
        "publisher": "zmq",
        "topic": "kv-events",
        "endpoint": f"tcp://*:{zmq_port(replica.kv_events, f'{field}.kv_events')}",
    }
    if target.pool.max_adapters:
        config["format"] = "dynamo"  # names adapters from their loads, the other one from requests
    if replica.kv_events_replay:
        config["replay_endpoint"] = f"tcp://*:{zmq_port(replica.kv_events_replay, f'{field}.kv_events_replay')}"
    return json.dumps(config, separators=(",", ":"))


def _pair(target: Target) -> Iterator[Argument]:
    launch = target.launch
    role = target.pool.role
    if role == "unified":
        return
    yield Argument("--disaggregation-mode", (role,), "half of a pair")
    yield Argument(TRANSFER, (launch.transfer_backend,), "of both halves")
    if role == "prefill":
        port = str(target.replica.bootstrap_port)
        yield Argument("--disaggregation-bootstrap-port", (port,), "where decode engines find it")


def _speculation(target: Target, drafts: Drafts) -> Iterator[Argument]:
    config = drafts.config
    yield Argument("--speculative-algorithm", (ALGORITHMS[config.algorithm],))
    if config.algorithm == "ngram":
        yield Argument("--speculative-num-draft-tokens", (str(drafts.tokens),), "checked at once")
        return
    yield Argument("--speculative-draft-model-path", (config.draft_model,))
    if target.sizing.weights.value is not Precision.BF16:
        yield Argument(
            "--speculative-draft-model-quantization",
            ("unquant",),
            "the head is BF16; otherwise SGLang reads it in the model's format",
        )
    yield Argument("--speculative-num-steps", (str(drafts.steps.value),), drafts.steps.why)
    yield Argument("--speculative-eagle-topk", (str(config.topk),), "a chain" if config.topk == 1 else "a tree")
    yield Argument("--speculative-num-draft-tokens", (str(drafts.tokens),), "checked at once")
    if config.adaptive:
        yield Argument("--speculative-adaptive", (), "chooses a number of drafts that pays, by acceptance")
        yield Argument(
            "--speculative-adaptive-config",
            (target.path("adaptive.json"),),
            "a 0: at that batch size, drafts may not pay",
        )


def _files(target: Target) -> Iterator[LaunchFile]:
    drafts = target.drafts
    if drafts is None or not drafts.config.adaptive or drafts.config.algorithm == "ngram":
        return
    table: dict[str, object] = {"ema_alpha": EMA_ALPHA, "down_hysteresis": DOWN_HYSTERESIS}
    table |= {str(batch): {"candidate_steps": steps} for batch, steps in _by_batch(target.pool, drafts).items()}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in table.items())
    yield LaunchFile(target.path("adaptive.json"), f"{{\n{lines}\n}}\n")


def _by_batch(pool: Pool, drafts: Drafts) -> dict[int, list[int]]:
    """The numbers of drafts to choose among, by smallest batch; none above the batch that the governor allows."""
    if not pool.speculation.governed:
        return drafts.adaptive
    # SGLang starts with a number of drafts that must be that of some batch
    first_without = max(int(pool.speculation.off_above_running) + 1, 2)
    return {batch: steps for batch, steps in drafts.adaptive.items() if batch < first_without} | {first_without: [0]}


def _require_governed(target: Target) -> None:
    """Raises ConfigError if SGLang's own table is to govern drafts and this launch has none."""
    drafts = target.drafts
    if drafts is None or not target.pool.speculation.governed:
        return
    if not drafts.config.adaptive or drafts.config.algorithm == "ngram":
        field = f"pools.{target.pool.name}.speculation.governed"
        raise SettingsConflict(
            f"{field}: SGLang drafts by load only with a table of its own, and this launch gives it none; set "
            "launch.speculation.adaptive = true with a draft head, or governed = false",
            param=field,
        )


def _before(target: Target) -> Iterator[str]:
    read = read_key(target.pool, target.token_file)
    if not read:
        return
    path = target.path("key.yaml")
    # a quote inside a YAML string in single quotes is doubled; only the first line is the key
    edit = r"1{s/^[[:space:]]*//;s/[[:space:]]*\$//;s/'/''/g;s/.*/api-key: '&'/;p;}"
    yield f'(umask 077; {read} | sed -n "{edit}" > {shlex.quote(path)})'
    yield f"test -s {shlex.quote(path)}  # without a key it would serve everybody"


def _notes(target: Target) -> Iterator[str]:
    if read_key(target.pool, target.token_file):
        yield (
            f"the key is read from {source(target.pool, target.token_file)}; SGLang writes all its settings, this one "
            "among them, into its log as it starts, so anyone who can read the log has the key"
        )
    if target.drafts is not None and target.pool.role == "prefill":
        yield "a prefill engine is given the same head as its decode engine, which continues from its hidden states"


def _require_extra(target: Target, arguments: tuple[Argument, ...], options: KnownOptions) -> None:
    """Raises ConfigError for extra arguments that contradict rendered ones."""
    field, extra = f"{target.field}.extra_arguments", further_options(target.launch)
    if "--api-key" in extra or "--admin-api-key" in extra:
        raise ConfigError(
            f"{field}: a key never appears on a command line; give the pool's api_key_file or api_key_env", param=field
        )
    if "--grpc-port" in extra and read_key(target.pool, target.token_file):
        raise SettingsConflict(
            f"{field}: SGLang's gRPC port checks no key, so SGLang refuses one next to it; leave --grpc-port out, or "
            "set api_key_required = false if no other client reaches the engine",
            param=field,
        )
    policy = extra.pop("--schedule-policy", "") if target.launch.priorities else ""
    if policy and policy not in ORDERS_WITH_PRIORITY:
        raise SettingsConflict(
            f"{field}: SGLang orders by priority with the policies {' and '.join(ORDERS_WITH_PRIORITY)} only, not with "
            f"{policy}; set priorities = false, or another policy",
            param=field,
        )
    options.require_once((each.name for each in arguments), extra, field)
