"""The settings of a whole deployment: one section per process kind, plus the fleet that is seeded as desired state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from contracts import settings
from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError
from contracts.fill_in_the_middle import FillInTheMiddle
from control.batches.config import BatchesConfig
from control.eval_runs.config import EvalsConfig
from control.slo.objectives import SloConfig
from engines.embedded.config import EngineConfig
from engines.http.keys import EngineKeys
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.private import secret_text
from router.config import RouterConfig
from slipstream.gateway_settings import ControlConfig, GatewaySettings
from slipstream.pool_settings import PoolSettings
from slipstream.worker_config import WorkerConfig
from telemetry.config import LoggingConfig, TracingConfig
from tools.lsp.key import API_KEY_VARIABLE

DEFAULT_FILE = "slipstream.toml"
AUDIT_FOLDER = "audit"
"""The default folder of the audit log's heads, in the data folder."""
RENAMED = {
    "router.promises": "router.slos",
    "router.metrics_port": "router.metrics.port",
    "router.concurrency.most": "router.concurrency.max_limit",
    "pools[].running_usage": "pools[].continuous_usage_stats",
}
"""Names of settings in earlier releases, and their present names."""
_KEY = (
    "settings hold no secrets: give api_key_file, the absolute path of a file that holds the key, or "
    "api_key_env, the NAME of an environment variable that does"
)
INSTEAD = {
    "pools[].api_key": _KEY,
    "pools[].replicas[].api_key": f"{_KEY}; both belong to the pool",
    "pools[].launch.memory": "it is called memory_fraction now",
    "pools[].launch.role": "it is the pool's own role; TensorRT-LLM's pairs are pools[].launch.disaggregated",
    "pools[].launch.bootstrap_port": "it is bootstrap_port of each replica of the prefill pool",
    "pools[].launch.tensor_parallel": "it is the pool's own tensor_parallel",
    **{f"models[].fim_{name}": f"it is fim.{name} now" for name in FillInTheMiddle.__struct_fields__},
}
"""Hints for settings that users know from another program or an earlier release."""
INHERITED = {"pools[].engine": "engine"}
"""Sections of a pool, and the sections with their defaults for all pools."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that can be set. Each process reads its own section."""

    local: LocalConfig = LocalConfig()
    """This machine: data folder, embedded servers, restarts."""
    gateway: GatewaySettings = GatewaySettings()
    """Every gateway instance."""
    control: ControlConfig = ControlConfig()
    """The address of the admin API and the console."""
    router: RouterConfig = RouterConfig()
    """The router."""
    engine: EngineConfig = EngineConfig()
    """Every embedded engine, unless its pool's `engine` overrides a setting. `up` gives each engine its model, name and
    port."""
    worker: WorkerConfig = WorkerConfig()
    """Background work."""
    evals: EvalsConfig = EvalsConfig()
    """Runs of evals."""
    batches: BatchesConfig = BatchesConfig()
    """Files and batches of tenants."""
    logging: LoggingConfig = LoggingConfig()
    """Logs of all processes."""
    slo: SloConfig = SloConfig()
    """Service level objectives, which requests are judged by."""
    tracing: TracingConfig = TracingConfig()
    """Export of request spans."""
    models: tuple[Model, ...] = ()
    """Models as clients see them. Empty: `up` serves the two models that come with Slipstream on embedded engines."""
    pools: tuple[PoolSettings, ...] = ()
    """Engines that serve `models`: external ones by URL, and embedded ones that `up` starts. If `models` is set, `up`
    starts no other engines."""

    @property
    def data(self) -> DataFolder:
        """The paths of this deployment's data folder."""
        return DataFolder(Path(self.local.data))

    @property
    def desired_pools(self) -> tuple[Pool, ...]:
        """The pools as desired state, without the settings that start their engines."""
        return tuple(pool.desired for pool in self.pools)

    @property
    def own_engines(self) -> tuple[str, ...]:
        """URLs of the engines that run under the router's account, on its machine."""
        return tuple(replica.url for pool in self.pools if pool.own_account for replica in pool.replicas)

    @property
    def currency(self) -> str:
        """The currency of prices, budgets and invoices."""
        return self.gateway.admin.currency

    @property
    def database_url(self) -> str:
        """The URL of PostgreSQL: the one in the settings, else the embedded one's."""
        return self.local.database_url or self.data.database_url

    @property
    def migration_database_url(self) -> str:
        """The URL of the same database for the role that owns its tables."""
        embedded = self.data.migration_database_url
        return self.local.migration_database_url or self.local.database_url or embedded

    @property
    def audit_heads(self) -> Path:
        """The folder in which the worker records heads of the audit log."""
        return Path(self.worker.audit.heads_folder or self.data.path / AUDIT_FOLDER)

    @property
    def valkey_url(self) -> str:
        """The URL of Valkey: the one in the settings, else the embedded one's."""
        return self.local.valkey_url or self.data.valkey_url

    @property
    def control_address(self) -> str:
        """`host:port` of the router's control service, as this machine reaches it."""
        host = reachable(self.router.host)
        return f"[{host}]:{self.router.control_port}" if ":" in host else f"{host}:{self.router.control_port}"

    @property
    def token(self) -> str:
        """The deployment's token, which engines require. Created on first use, like all secrets."""
        return secret_text(self.data.token_file)

    @property
    def router_token(self) -> str:
        """The token by which the router authenticates gateways."""
        return secret_text(self.data.router_token_file)

    @property
    def reader_token(self) -> str:
        """The token that allows commands to query the router, and nothing more."""
        return secret_text(self.data.reader_token_file)

    @property
    def metrics_token(self) -> str:
        """The token by which router and worker read an embedded engine's load and counters and generate one token."""
        return secret_text(self.data.metrics_token_file)

    def observer_keys(self) -> EngineKeys:
        """The engine keys of router and worker, which generate nothing for tenants.

        Raises ConfigError if a pool's key cannot be read.
        """
        keys = EngineKeys(lambda: self.token, os.environ, lambda: self.metrics_token)
        keys.require(self.pools)
        return keys

    @property
    def pepper(self) -> bytes:
        """The secret with which API keys are hashed. Created on first use."""
        return secret_text(self.data.pepper_file).encode()


def reachable(host: str) -> str:
    """The address by which this machine reaches a listener on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def settings_file(path: Path | None) -> Path | None:
    """The file that `load` reads; None if there is none."""
    default = Path(DEFAULT_FILE)
    return default if path is None and default.is_file() else path


def load(path: Path | None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read settings from `path` (None for `slipstream.toml` here, if it exists), the environment and the command line.

    Raises ConfigError.
    """
    path = settings_file(path)
    environ = {name: value for name, value in os.environ.items() if name != API_KEY_VARIABLE}  # for clients, no setting
    loaded = settings.load(Settings, path, environ, overrides, RENAMED, instead=INSTEAD, inherited=INHERITED)
    if loaded.local.migration_database_url and not loaded.local.database_url:
        raise ConfigError(
            "local.migration_database_url: it names the tables' owner, and local.database_url must name the role that "
            "gateways and workers use; set both, or neither for the embedded PostgreSQL",
            param="local.migration_database_url",
        )
    if loaded.pools and not loaded.models:
        raise ConfigError("pools: there are pools but no models; add a [[models]] entry for each pool", param="pools")
    for pool in loaded.pools:
        pool.check_names()
        pool.check_api_key()
    loaded.slo.check()
    loaded.gateway.console.check()
    loaded.evals.check()
    loaded.batches.check()
    return loaded
