"""The engines of other projects that `up` starts: those of pools with a `launch` and without `replicas`, each by the
command that `slipstream tools engines render` prints. An engine that is not installed does not start; everything else
does.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from contracts.desired_state import Model, Replica
from contracts.errors import ConfigError
from infra.local.ports import Ports
from slipstream import model_folder
from slipstream.hub_model import is_hub_name
from slipstream.launch_rendering import launches
from slipstream.pool_settings import PoolSettings
from slipstream.settings import Settings, reachable
from tools.launch.config import LaunchConfig
from tools.launch.dialects.llama_cpp import slots_of
from tools.launch.render import LLAMA_CPP
from tools.launch.spec import LaunchSpec, Variable

HOST = "127.0.0.1"
EXAMPLE_PORT = 30_000
"""The port of an engine for which no `up` has chosen one."""
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


class Program(NamedTuple):
    """An engine's executable, and how to install it."""

    title: str
    name: str
    install: str


PROGRAMS = {
    "sglang": Program("SGLang", "sglang", "`pip install sglang` in an environment of its own"),
    "vllm": Program("vLLM", "vllm", "`pip install vllm` in an environment of its own"),
    "tensorrt_llm": Program("TensorRT-LLM", "trtllm-serve", "`pip install tensorrt-llm` in an environment of its own"),
    LLAMA_CPP: Program("llama.cpp", "llama-server", "`brew install llama.cpp`, or a build of its sources"),
}
"""Programs by driver."""


class LocalLaunch(msgspec.Struct, frozen=True):
    """One engine to start. unavailable_reason: why it cannot start here, or empty if it can."""

    replica: Replica
    spec: LaunchSpec
    unavailable_reason: str

    @property
    def name(self) -> str:
        """The name of the engine's process, log and replica."""
        return self.replica.id


def local_pools(settings: Settings) -> tuple[str, ...]:
    """The names of the pools whose engines `up` starts by the pool's launch."""
    return tuple(pool.name for pool in settings.pools if pool.launch is not None and not pool.replicas)


def with_replicas(settings: Settings, port_of: Callable[[str], int]) -> Settings:
    """The settings with these engines as ordinary replicas. port_of: returns the port for an engine's name.

    Raises ConfigError for a launch that is impossible on this machine.
    """
    local = local_pools(settings)
    pools = tuple(_with_replicas(settings, pool, port_of) if pool.name in local else pool for pool in settings.pools)
    folders = {pool.name: pool.launch.model for pool in pools if pool.name in local and pool.launch is not None}
    models = tuple(_with_tokenizer(model, folders.get(model.pool)) for model in settings.models)
    return msgspec.structs.replace(settings, models=models, pools=pools)


def with_saved_ports(settings: Settings) -> Settings:
    """The settings with these engines at the ports that the last `up` chose, for display. Raises ConfigError."""
    ports = Ports(settings.data.ports_file)
    return with_replicas(settings, lambda name: ports.saved(name) or EXAMPLE_PORT)


def unavailable_pools(settings: Settings, local: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The pools whose engines cannot start here, each with the reason. Parameters: see `plan_launches`."""
    for pool in settings.pools:
        if pool.name in local and (reason := _unavailable_reason(pool)):
            yield pool.name, reason


def plan_launches(settings: Settings, local: Sequence[str]) -> tuple[LocalLaunch, ...]:
    """The engines to start, in order. settings: those of `with_replicas`. local: the pools. Raises ConfigError."""
    engines = [
        LocalLaunch(replica, spec, _unavailable_reason(pool))
        for pool in settings.pools
        if pool.name in local
        for replica, spec in zip(pool.replicas, launches(settings, pool.name, "", ""), strict=True)
    ]
    return tuple(_with_gpus({pool.name: pool for pool in settings.pools}, engines))


def _with_replicas(settings: Settings, pool: PoolSettings, port_of: Callable[[str], int]) -> PoolSettings:
    launch = pool.launch
    assert launch is not None, "a pool without a launch"
    trail = f"pools.{pool.name}"
    _require_possible(pool, launch, trail)
    host = reachable(launch.host or HOST)
    names = [f"engine-{pool.name}-{number}" for number in range(1, pool.local_replicas + 1)]
    replicas = tuple(
        Replica(
            id=name,
            url=f"http://{f'[{host}]' if ':' in host else host}:{launch.port or port_of(name)}",
            speculation=launch.speculation is not None,
        )
        for name in names
    )
    default = LaunchConfig(model=launch.model)
    folder = launch.folder if launch.folder != default.folder else str(settings.data.engine_files)
    launch = msgspec.structs.replace(
        launch, model=_located(pool, launch, trail), folder=folder, program=_found(pool, launch) or launch.program
    )
    slots = slots_of(pool, launch) if pool.driver == LLAMA_CPP else pool.max_concurrency
    return msgspec.structs.replace(
        pool, replicas=replicas, local_replicas=1, launch=launch, max_concurrency=slots, own_account=True
    )


def _require_possible(pool: PoolSettings, launch: LaunchConfig, trail: str) -> None:
    fault = ""
    if pool.engine is not None:
        fault = "pools.engine is given too, for embedded engines; give one of the two"
    elif pool.driver not in PROGRAMS:
        fault = f"`up` cannot start engines of the driver {pool.driver!r} from a launch; drivers: {', '.join(PROGRAMS)}"
    elif pool.role != "unified" or launch.disaggregated is not None:
        fault = "`up` starts no prefill/decode pairs; start them by `slipstream tools engines render`"
    elif launch.port and pool.local_replicas > 1:
        fault = (
            f"port {launch.port} cannot serve {pool.local_replicas} engines; leave it out, and `up` chooses a port "
            "for each"
        )
    if fault:
        raise ConfigError(
            f"{trail}.launch: no replicas are given, so `up` would start them, and {fault}; or give the addresses of "
            "engines that are started elsewhere as replicas",
            param=f"{trail}.launch",
        )


def _located(pool: PoolSettings, launch: LaunchConfig, trail: str) -> str:
    """The model's absolute path, or its name on the Hub."""
    path = model_folder.find(launch.model).expanduser()
    wants_file = pool.driver == LLAMA_CPP
    if path.exists() and (path.suffix == ".gguf") == wants_file:
        return str(path.resolve())
    if not path.exists() and is_hub_name(launch.model):
        return launch.model
    expected = "a GGUF file" if wants_file else "the folder of a model"
    found = f"not {expected}" if path.exists() else "not on this machine"
    raise ConfigError(
        f"{trail}.launch.model: {launch.model} is {found}; give {expected}, or a name on the Hub such as "
        f"{'ggml-org/Qwen3-0.6B-GGUF' if wants_file else 'Qwen/Qwen3-0.6B'}",
        param=f"{trail}.launch.model",
    )


def _found(pool: PoolSettings, launch: LaunchConfig) -> str:
    """The path of the executable; empty if it is not installed."""
    path = shutil.which(launch.program or PROGRAMS[pool.driver].name)
    if path is None:
        return ""
    if pool.driver != "sglang" or launch.program:
        return path
    # Rendered commands name SGLang's Python, which is next to the script.
    python = Path(path).resolve().parent / "python3"
    return str(python) if python.exists() else ""


def _unavailable_reason(pool: PoolSettings) -> str:
    assert pool.launch is not None
    if _found(pool, pool.launch):
        return ""
    program, setting = PROGRAMS[pool.driver], f"pools.{pool.name}.launch.program"
    if pool.launch.program:
        return f"{setting}: {pool.launch.program} is not an executable; give the path of {program.title}'s"
    return (
        f"{program.title} is not installed: no `{program.name}` is on the PATH; install it ({program.install}) and add "
        f"its folder to the PATH, or set {setting}"
    )


def _with_tokenizer(model: Model, folder: str | None) -> Model:
    if model.tokenizer is not None or folder is None or not (Path(folder) / "tokenizer.json").is_file():
        return model
    return msgspec.structs.replace(model, tokenizer=folder)


def _with_gpus(pools: dict[str, PoolSettings], engines: Sequence[LocalLaunch]) -> Iterator[LocalLaunch]:
    """The engines, each with its own GPUs if several of them use this machine's. Raises ConfigError."""
    on_gpus = [engine for engine in engines if _uses_gpus(pools[engine.spec.pool])]
    first = 0
    for engine in engines:
        pool = pools[engine.spec.pool]
        if len(on_gpus) < 2 or engine not in on_gpus or (pool.launch and VISIBLE_GPUS in pool.launch.environment):
            yield engine
            continue
        if not pool.tensor_parallel:
            field = f"pools.{pool.name}.tensor_parallel"
            raise ConfigError(
                f"{field}: 0, but {len(on_gpus)} engines share this machine's GPUs; give the number of GPUs of each "
                f"engine in this pool, or {VISIBLE_GPUS} in its launch.environment",
                param=field,
            )
        last = first + pool.tensor_parallel
        gpus = Variable(VISIBLE_GPUS, ",".join(map(str, range(first, last))), "GPUs of its own")
        first = last
        spec = msgspec.structs.replace(engine.spec, environment=(*engine.spec.environment, gpus))
        yield msgspec.structs.replace(engine, spec=spec)


def _uses_gpus(pool: PoolSettings) -> bool:
    return pool.launch is not None and bool(pool.launch.gpu or pool.tensor_parallel)
