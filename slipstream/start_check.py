"""The checks of settings by `up` before a start, and by `slipstream config check` and `slipstream doctor`.

They create nothing, not even the token that a first start creates.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from contracts.errors import ConfigError
from control.fleet.servable import check_served, check_tokenizer
from engines.http.keys import EngineKeys
from gateway.auth import keyring
from gateway.http.certificate import certificate_of
from gateway.http.networks import trusted_networks
from gateway.http.page_origins import checked_origins
from router.policies import registry as policies
from router.protocol.address import Address
from slipstream import launch_plan, local_engine_check, local_engines
from slipstream.fleet_check import check_fleet, estimated, known_token
from slipstream.launch_rendering import require_launches
from slipstream.local_engine_check import Footprint
from slipstream.settings import Settings
from storage import valkey
from storage.engine import checked

INSTEAD_OF_LOCAL = {
    "chat_model": "pools[].engine.model",
    "code_model": "pools[].engine.model",
    "chat_aliases": "models[].aliases",
    "code_aliases": "models[].aliases",
    "fim": "models[].fim",
    "chat_context_tokens": "pools[].engine.context_tokens",
    "code_context_tokens": "pools[].engine.context_tokens",
    "chat_replicas": "pools[].local_replicas",
    "code_replicas": "pools[].local_replicas",
    "code_speculation": "pools[].engine.speculation",
    "price_per_replica_hour": "pools[].price_per_replica_hour",
}
"""Settings of the default models of `up`, and the ones to use instead for models that the settings name."""


def check(settings: Settings) -> list[Footprint]:
    """Check everything that gateways, router, workers and engines would refuse at their start, and the files that the
    settings name: tokenizers, engines' keys, certificate, model folders, and launches of engines that another program
    starts. The processes check their settings by the same functions.

    Returns the footprints of the engines that `up` starts. Raises ConfigError.
    """
    check_fleet(settings)
    _check_local(settings)
    _check_addresses(settings)
    policies.create(settings.router.policy)
    keyring.check(settings.gateway.auth)
    EngineKeys(lambda: known_token(settings), os.environ).require(settings.pools)
    certificate_of(settings.gateway.tls)
    local = launch_plan.local_pools(settings)
    settings = launch_plan.with_saved_ports(settings)
    require_launches(settings)
    launch_plan.plan_launches(settings, local)
    served, engines = local_engines.planned(settings)
    needed = local_engine_check.check(engines)
    pools = {pool.name: pool for pool in local_engines.with_replicas(served, engines).pools}
    for model in settings.models:
        check_tokenizer(model)
        check_served(model, pools[model.pool])
    return needed


def warnings(settings: Settings) -> Iterator[str]:
    """The warnings about valid settings."""
    local, settings = launch_plan.local_pools(settings), launch_plan.with_saved_ports(settings)
    served, engines = local_engines.planned(settings)
    for warning in (estimated(served), local_engine_check.crowded(engines)):
        if warning is not None:
            yield warning
    for pool, reason in launch_plan.unavailable_pools(settings, local):
        yield f"pool {pool}: {reason}"


def _check_local(settings: Settings) -> None:
    """Refuse settings of the default models of `up` if the settings name models."""
    if not settings.models:
        return
    defaults = type(settings.local)()
    for name, instead in INSTEAD_OF_LOCAL.items():
        if getattr(settings.local, name) != getattr(defaults, name):
            raise ConfigError(
                f"local.{name}: it applies only to the default models of `up`, and the settings name models; use "
                f"{instead} and remove it",
                param=f"local.{name}",
            )


def _check_addresses(settings: Settings) -> None:
    """Check the addresses that processes connect to, the trusted proxies and the allowed origins."""
    checked(settings.database_url, "local.database_url")
    checked(settings.migration_database_url, "local.migration_database_url")
    valkey.Address(settings.valkey_url)
    Address.parse(settings.gateway.router.address, "gateway.router.address")
    trusted_networks(settings.gateway.connections.trusted_proxies)
    checked_origins(settings.gateway.cors_origins)
