"""The embedded engines that `up` starts: their pools, settings and ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from contracts.desired_state import Model, Replica
from contracts.errors import ConfigError
from contracts.generation import Tier
from contracts.pooling import Task
from control.fleet.served_names import served_names
from engines.embedded.config import EngineConfig
from engines.embedded.cores import physical_cores, shared_threads
from infra.local.ports import Ports
from slipstream import fleet, model_folder
from slipstream.model_folder import ModelFolder
from slipstream.pool_settings import DRIVER, PoolSettings
from slipstream.settings import Settings, reachable

_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>\*|\d+)")
ANY_PORT = "*"
"""ZeroMQ's wildcard port in an endpoint: `up` chooses a port for each engine."""


class Engine(msgspec.Struct, frozen=True):
    """One embedded engine process to start."""

    name: str
    pool: str
    trail: str
    """The path of its settings, for messages: `pools.code.engine`."""
    folder: ModelFolder
    config: EngineConfig
    """All of its settings; `placed` chooses the ports."""
    promised: bool = True
    """Whether it serves a model of the settings, so that its context is at least the promised one. Otherwise, its
    replica states its own context: a release is refused if its model has a longer one."""

    @property
    def url(self) -> str:
        """The URL by which gateways and router reach it."""
        host = reachable(self.config.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.config.port}"

    @property
    def replica(self) -> Replica:
        """The replica of its pool."""
        events = self.config.kv_events
        return Replica(
            id=self.name,
            url=self.url,
            context_tokens=0 if self.promised else self.config.context_tokens,
            kv_events=_reachable_endpoint(events.endpoint),
            kv_events_replay=_reachable_endpoint(events.replay_endpoint),
        )


def planned(settings: Settings) -> tuple[Settings, tuple[Engine, ...]]:
    """The settings with the served models, each with the tokenizer of its embedded engine; and the engines to start, in
    the order of the pools, without ports.

    Raises ConfigError for a pool whose engines cannot be started, and for an unusable folder.
    """
    served = fleet.with_models(settings)
    engines = tuple(
        engine
        for pool in served.pools
        for engine in _of_pool(served, pool, f"pools.{pool.name}.engine" if settings.models else "engine")
    )
    engines = _with_threads(engines)
    folders = {engine.pool: str(engine.folder.path) for engine in engines}
    models = tuple(
        msgspec.structs.replace(model, tokenizer=model.tokenizer or folders.get(model.pool)) for model in served.models
    )
    return msgspec.structs.replace(served, models=models), engines


def _with_threads(engines: tuple[Engine, ...]) -> tuple[Engine, ...]:
    """The same engines; those with `threads = "auto"` share the cores that the others leave."""
    fixed = [engine.config.threads for engine in engines if engine.config.threads != "auto"]
    threads = shared_threads(physical_cores(), sum(fixed), len(engines) - len(fixed))
    return tuple(
        msgspec.structs.replace(engine, config=msgspec.structs.replace(engine.config, threads=threads))
        if engine.config.threads == "auto"
        else engine
        for engine in engines
    )


def placed(engines: Sequence[Engine], ports: Ports) -> tuple[Engine, ...]:
    """The same engines, each with its own ports: for requests, and for cache events if it publishes them."""
    return tuple(_placed(engine, ports) for engine in engines)


def with_replicas(settings: Settings, engines: Sequence[Engine]) -> Settings:
    """The settings for every other process, with these engines as ordinary replicas."""
    pools = tuple(
        msgspec.structs.replace(
            pool,
            engine=None,
            local_replicas=1,
            replicas=tuple(engine.replica for engine in engines if engine.pool == pool.name),
        )
        if pool.engine is not None
        else pool
        for pool in settings.pools
    )
    return msgspec.structs.replace(settings, pools=pools)


def _of_pool(settings: Settings, pool: PoolSettings, trail: str) -> Iterator[Engine]:
    config = pool.engine
    if config is None:
        if pool.local_replicas > 1 and (pool.launch is None or pool.replicas):
            raise ConfigError(
                f"pools.{pool.name}.local_replicas: {pool.local_replicas} engines to start, but no model; "
                f'give {trail} = {{ model = "FOLDER" }}, or the engines\' addresses as replicas',
                param=f"pools.{pool.name}.local_replicas",
            )
        return
    _require_ours(pool, trail)
    _require_unchosen(config, settings.engine, trail)
    if not config.model:
        raise ConfigError(
            f"{trail}.model: missing; give the folder of a model, or the name of one that comes with Slipstream",
            param=f"{trail}.model",
        )
    models = [served.model for served in served_names(settings.models, pool.name)]
    needs_template = any(model.tier is Tier.CHAT and model.task is Task.TEXT for model in models)
    folder = model_folder.read_path(model_folder.find(config.model), f"{trail}.model", needs_template)
    name = _name(settings.models, pool.name, folder)
    context_tokens = _context(config, settings.engine, folder, models, trail)
    config = msgspec.structs.replace(
        config,
        model=str(folder.path),
        name=name,
        port=0,
        context_tokens=context_tokens,
        speculation=fleet.pool_drafting(config.speculation, models),
    )
    for number in range(1, pool.local_replicas + 1):
        yield Engine(f"engine-{pool.name}-{number}", pool.name, trail, folder, config, bool(models))


def _require_ours(pool: PoolSettings, trail: str) -> None:
    """Raises ConfigError unless the pool's engines are embedded ones that `up` starts."""
    if pool.driver != DRIVER:
        raise ConfigError(
            f"{trail}: it is for engines of the driver {DRIVER!r}, and pools.{pool.name}.driver is {pool.driver!r}; "
            f"give pools.{pool.name}.launch instead, with its model, or the engines' addresses as replicas",
            param=trail,
        )
    if pool.replicas:
        raise ConfigError(
            f"{trail}: `up` would start this pool's engines, and `replicas` lists other engines "
            f"({', '.join(replica.id for replica in pool.replicas)}); give one of the two, or make two pools",
            param=trail,
        )
    if pool.launch is not None:
        raise ConfigError(
            f"{trail}: `up` would start this pool's engines, and pools.{pool.name}.launch describes engines "
            "started elsewhere; give one of the two",
            param=trail,
        )


def _require_unchosen(config: EngineConfig, of_all: EngineConfig, trail: str) -> None:
    """Raises ConfigError for a setting that `up` chooses itself."""
    for field, value, default in (
        ("name", config.name, of_all.name),
        ("port", config.port, of_all.port),
        ("metrics", config.metrics, of_all.metrics),
    ):
        if value != default:
            raise ConfigError(
                f"{trail}.{field}: `up` chooses it for every engine that it starts, and `slipstream status` and the "
                "list of metrics targets show it; leave it out",
                param=f"{trail}.{field}",
            )


def _name(models: Sequence[Model], pool_name: str, folder: ModelFolder) -> str:
    """The name under which the pool's engines serve the model. Raises ConfigError if models request two names."""
    served = list(served_names(models, pool_name))
    for one in served[1:]:
        if one.name != served[0].name:
            raise ConfigError(
                f"{one.setting}: an embedded engine serves one model under one name, and of pools.{pool_name} "
                f"{served[0].model.name} requests {served[0].name!r} and {one.model.name} requests {one.name!r}; set "
                f"both to {served[0].name!r}, or make a pool for each",
                param=one.setting,
            )
    return served[0].name if served else folder.name


def _context(
    config: EngineConfig, of_all: EngineConfig, folder: ModelFolder, models: Sequence[Model], trail: str
) -> int:
    """The longest prompt and output that the pool's engines take: the limit of `[engine]`, cut to the model's context.
    Raises ConfigError if more is promised."""
    made = folder.context_tokens
    if config.context_tokens > made and config.context_tokens != of_all.context_tokens:
        raise ConfigError(
            f"{trail}.context_tokens: {config.context_tokens:,} tokens are more than {folder.name} supports; set at "
            f"most {made:,}, or 0 for all of them",
            param=f"{trail}.context_tokens",
        )
    taken = min(config.context_tokens or made, made)
    for model in models:
        if model.context_tokens > taken:
            raise ConfigError(
                f"models.{model.name}.context_tokens: {model.context_tokens:,}, but the engines of pools.{model.pool} "
                f"take {taken:,} ({f'{trail}.context_tokens' if taken < made else 'as made'}); promise {taken:,} at "
                "most",
                param=f"models.{model.name}.context_tokens",
            )
    return taken


def _placed(engine: Engine, ports: Ports) -> Engine:
    events = engine.config.kv_events
    chosen = msgspec.structs.replace(
        events,
        endpoint=_with_port(events.endpoint, f"{engine.name} KV events", ports),
        replay_endpoint=_with_port(events.replay_endpoint, f"{engine.name} KV events replay", ports),
    )
    config = msgspec.structs.replace(engine.config, port=ports.pick(engine.name), kv_events=chosen)
    return msgspec.structs.replace(engine, config=config)


def _with_port(endpoint: str, name: str, ports: Ports) -> str:
    found = _TCP.fullmatch(endpoint)
    return f"tcp://{found['host']}:{ports.pick(name)}" if found and found["port"] == ANY_PORT else endpoint


def _reachable_endpoint(endpoint: str) -> str:
    """The endpoint to which a subscriber on this machine connects."""
    found = _TCP.fullmatch(endpoint)
    if found is None:
        return endpoint
    host = "127.0.0.1" if found["host"] == ANY_PORT else reachable(found["host"])
    return f"tcp://{host}:{found['port']}"
