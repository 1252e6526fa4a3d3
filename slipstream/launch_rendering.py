"""Derives launch commands from settings: a pool's model, its number of GPUs, and the batch one notch under the knee.

The planner computes the knee; everything else is in `tools.launch`, which does not use the planner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from contracts.desired_state import Model, Replica
from contracts.errors import ConfigError
from control.fleet.served_names import served_names
from engines.performance.fit import require_fit
from engines.performance.roofline import Roofline
from gateway.desired.pool_options import check_options
from slipstream.pool_settings import PoolSettings
from slipstream.settings import DEFAULT_FILE, Settings
from tools.launch.config import LaunchConfig, LaunchWorkload
from tools.launch.disaggregated import front_of, workers
from tools.launch.model_context import require_context
from tools.launch.pair import Half, require_alike
from tools.launch.render import Served, check_gpu, render
from tools.launch.sizing import gpu_of, node_of
from tools.launch.spec import LaunchSpec, Reasoned
from tools.planning.operating_point import PLATEAU, Knee, knee
from tools.planning.plan import TENSOR_PARALLEL
from tools.planning.workload import Promise, PromiseOutOfReach, Workload

VARIANTS = {"on": (True,), "off": (False,), "both": (False, True)}
PROMISES = {"promise.ttft_s": "workload.ttft_ms", "promise.tpot_s": "workload.tpot_ms"}
"""The settings of a launch for the planner's promises."""


def launches(
    settings: Settings, pool_name: str, replica_id: str, speculation: str, source: str = ""
) -> list[LaunchSpec]:
    """The commands of a pool's replicas, or of one of them.

    speculation: `on`, `off` or `both`; empty for each replica's own setting. source: the file of the settings, for
    messages. Raises ConfigError.
    """
    pool = _pool(settings, pool_name, source)
    pool.check_role()
    check_options(pool)
    launch = _launch(pool)
    _require_pair(settings, pool)
    served = _served(settings, pool, launch)
    specs = []
    for replica in _replicas(pool, replica_id):
        for variant in VARIANTS.get(speculation, (replica.speculation,)):
            specs += _of_replica(pool, replica, launch, served, variant)
    return specs


def require_launches(settings: Settings) -> None:
    """Check every pool's launch like `slipstream tools engines render`. Raises ConfigError."""
    for pool in settings.pools:
        if pool.launch is not None:
            launches(settings, pool.name, "", "")


def notes_of(settings: Settings) -> Iterator[str]:
    """The notes of `slipstream tools engines render` on the valid launches of every pool. Raises ConfigError."""
    for pool in settings.pools:
        if pool.launch is not None:
            notes = (note for spec in launches(settings, pool.name, "", "") for note in spec.notes)
            yield from (f"pools.{pool.name}: {note}" for note in dict.fromkeys(notes))


def _of_replica(
    pool: PoolSettings, replica: Replica, launch: LaunchConfig, served: Served, speculation: bool
) -> list[LaunchSpec]:
    """The replica's command; for a front, after the commands of its engines."""
    if launch.disaggregated is None:
        return [render(pool, replica, launch, served, speculation)]
    front = front_of(pool, replica, launch, f"pools.{pool.name}.launch")
    engines = workers(pool, replica, launch.disaggregated)
    return [*(render(role, role.replicas[0], launch, served, speculation) for role in engines), front]


def _pool(settings: Settings, name: str, source: str) -> PoolSettings:
    for pool in settings.pools:
        if pool.name == name:
            return pool
    known = ", ".join(pool.name for pool in settings.pools) or "none"
    where = f"in {source}" if source else f"in the settings (no file was read: there is no {DEFAULT_FILE} here)"
    raise ConfigError(
        f"pool: there is no {name!r} {where}; its pools: {known}. Name one of them, or the file "
        "that has it with --config",
        param="pool",
    )


def _require_pair(settings: Settings, pool: PoolSettings) -> None:
    """Refuse a prefill/decode pair whose halves are launched differently. Raises ConfigError."""
    decode = next((each for each in settings.pools if pool.name in (each.name, each.prefill_pool)), pool)
    decode = pool if pool.role == "decode" else decode
    prefill = next((each for each in settings.pools if each.name == decode.prefill_pool), None)
    if prefill is not None and decode.launch is not None and prefill.launch is not None:
        require_alike(Half(decode, decode.launch), Half(prefill, prefill.launch))


def _launch(pool: PoolSettings) -> LaunchConfig:
    if pool.launch is None:
        raise ConfigError(
            f"pools.{pool.name}.launch: the settings do not describe how its engines are started; give "
            "[pools.launch] with its model",
            param=f"pools.{pool.name}.launch",
        )
    return pool.launch


def _replicas(pool: PoolSettings, replica_id: str) -> Iterable[Replica]:
    chosen = [replica for replica in pool.replicas if replica_id in ("", replica.id)]
    if not chosen:
        known = ", ".join(replica.id for replica in pool.replicas) or "none"
        raise ConfigError(f"pool {pool.name!r} has no replica {replica_id!r}; replicas: {known}")
    return chosen


def _served(settings: Settings, pool: PoolSettings, launch: LaunchConfig) -> Served:
    check_gpu(launch, pool.driver, f"pools.{pool.name}.launch")
    model, name = _model(settings, pool)
    context = (
        Reasoned(launch.context_tokens, "as set")
        if launch.context_tokens
        else Reasoned(model.context_tokens, f"of the model {model.name}")
    )
    if context.value < model.context_tokens:
        raise ConfigError(
            f"pools.{pool.name}.launch.context_tokens: the model {model.name} is offered with "
            f"{model.context_tokens:,} tokens, but its engines would accept only {context.value:,}; shorten "
            f"models.{model.name}.context_tokens as well",
            param=f"pools.{pool.name}.launch.context_tokens",
        )
    setting = (
        f"pools.{pool.name}.launch.context_tokens" if launch.context_tokens else f"models.{model.name}.context_tokens"
    )
    require_context(launch, context.value, setting)
    token_file = str(settings.data.token_file.resolve())
    if not launch.gpu:
        return Served(name, context, None, None, token_file)
    gpu_count, found = _gpu_count(launch, pool, context.value)
    return Served(name, context, gpu_count, _running(launch, found), token_file)


def _model(settings: Settings, pool: PoolSettings) -> tuple[Model, str]:
    """The model that the pool serves, and its name on the engines."""
    names: dict[str, Model] = {}
    for named in _named_by_models(settings, pool):
        for served in served_names(settings.models, named):
            names.setdefault(served.name, served.model)
    if len(names) != 1:
        fault = "by no model; name it in models[] (a candidate's, by a model of its own whose engine_model it serves)"
        if names:
            fault = f"under the names {', '.join(names)}, and an engine has one; set their engine_model"
        raise ConfigError(f"pools.{pool.name}: it is served {fault}", param=f"pools.{pool.name}")
    ((name, model),) = names.items()
    return model, name


def _named_by_models(settings: Settings, pool: PoolSettings) -> Iterator[str]:
    """The pools by which models refer to this pool: for a prefill pool, its decode pool, which may still be missing;
    for a decode pool, also the pool that sends it a share of its requests."""
    answering = next((each.name for each in settings.pools if each.prefill_pool == pool.name), pool.name)
    yield answering
    yield from (each.name for each in settings.pools if each.split_pool == answering)


def _gpu_count(launch: LaunchConfig, pool: PoolSettings, context_tokens: int) -> tuple[Reasoned[int], Knee | None]:
    """A replica's number of GPUs, as set or else the fewest that hold the model and the promise, and its knee."""
    refused: ConfigError | None = None
    tried: list[int] = []
    for gpu_count in (pool.tensor_parallel,) if pool.tensor_parallel else TENSOR_PARALLEL:
        try:
            found = _knee(launch, pool, gpu_count, context_tokens)
        except PromiseOutOfReach as error:
            tried.append(gpu_count)
            refused = error
            continue
        except ConfigError as error:
            refused = refused if refused and (tried or gpu_count > gpu_of(launch).per_node) else error
            continue
        condition = "and the promise" if launch.workload else "and one request of this context"
        why = f"the fewest GPUs that hold the model {condition}, in one NVLink node"
        return Reasoned(gpu_count, "as set" if pool.tensor_parallel else why), found
    assert refused is not None, "no number of GPUs was tried"
    if isinstance(refused, PromiseOutOfReach):
        raise _out_of_reach(launch, pool, refused, tried)
    raise refused


def _knee(launch: LaunchConfig, pool: PoolSettings, gpu_count: int, context_tokens: int) -> Knee | None:
    field = f"pools.{pool.name}.launch"
    node = node_of(launch, gpu_count, field, max_adapters=pool.max_adapters)
    try:
        require_fit(node, context_tokens)
    except ConfigError as error:
        raise ConfigError(f"{field}: {error.message}", param=field) from None
    if launch.workload is None:
        return None
    chunk = launch.chunk_tokens or node.gpu.chunk_tokens
    return knee(Roofline(node), _workload(launch.workload), _promise(launch.workload), chunk)


def _out_of_reach(
    launch: LaunchConfig, pool: PoolSettings, refused: PromiseOutOfReach, tried: Sequence[int]
) -> PromiseOutOfReach:
    """The planner's refusal in terms of the launch's settings. tried: numbers of GPUs; the refusal is of the last."""
    setting = PROMISES.get(refused.param or "", "workload")
    promised = getattr(launch.workload, setting.rpartition(".")[2], None)
    value = "" if promised is None else f"{promised:g}; "
    *fewer, last = tried
    counts = f"{', '.join(map(str, fewer))} and {last}" if fewer else str(last)
    least = " and ".join(f"{PROMISES[name]} = {math.ceil(each * 1e3)}" for name, each in refused.least.items())
    would_do = f"; with {last}, {least} or more would be enough, if nothing else exceeds its limit" if least else ""
    field = f"pools.{pool.name}.launch.{setting}"
    return PromiseOutOfReach(
        f"{field}: {value}{refused.message}. Tried: {counts} x {gpu_of(launch).name} a replica{would_do}",
        param=field,
    )


def _workload(config: LaunchWorkload) -> Workload:
    # The rate decides the number of replicas, not how one runs.
    return Workload(1.0, config.prompt_tokens, config.output_tokens, config.cached)


def _promise(config: LaunchWorkload) -> Promise:
    return Promise(config.ttft_ms / 1e3, config.tpot_ms / 1e3)


def _running(launch: LaunchConfig, found: Knee | None) -> Reasoned[int] | None:
    if launch.max_running:
        if found is None or launch.max_running <= found.point.batch or not found.broken_by:
            return Reasoned(launch.max_running, "as set")
        why = "throughput no longer rises" if found.broken_by == PLATEAU else f"the {found.broken_by} breaks"
        return Reasoned(launch.max_running, f"as set, beyond the knee at {found.point.batch}, where {why}")
    if found is None:
        return None
    point, beyond = found.operated_at, found.point
    if point.batch == beyond.batch:
        if found.broken_by == PLATEAU:
            return Reasoned(point.batch, "the knee: a larger batch has no higher throughput")
        return Reasoned(point.batch, f"the knee, set by {found.broken_by or 'the largest batch that is tried'}")
    return Reasoned(
        point.batch, f"one notch under the knee at {beyond.batch}, beyond which the {found.broken_by} would break"
    )
