"""What every start looks at before it does anything, and what `up` and `slipstream config check` look at besides.

Looking only: nothing is made, not even the token that a first start would make.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from contracts.desired_state import DesiredState
from contracts.errors import ConfigError
from control.fleet.servable import check_pool, check_served, check_tokenizer
from control.fleet.served_names import served_names
from engines.http.keys import EngineKeys
from gateway.auth import keyring
from gateway.http.certificate import certificate_of
from gateway.http.networks import trusted_networks
from gateway.http.page_origins import checked_origins
from router.policies import registry as policies
from router.protocol.address import Address
from slipstream import local_engine_check, local_engines
from slipstream.engine_launch import require_launches
from slipstream.fleet import pool_drafting
from slipstream.local_engine_check import Footprint
from slipstream.pool_settings import PoolSettings
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
"""Settings of the two models that `up` serves by itself, and those of models that are named."""
TOKEN_TO_BE_MADE = "made-by-the-first-start"
"""Stands for the token where there is none yet."""


def check_fleet(settings: Settings) -> None:
    """Raise ConfigError when models and pools contradict each other or name what there is not."""
    for pool in settings.pools:
        check_pool(pool)
        _check_drafts(pool, settings)
    DesiredState(version=1, models=settings.models, pools=settings.desired_pools).check()


def check(settings: Settings) -> list[Footprint]:
    """What gateways, router, workers and engines would refuse at their start, and what their settings name: tokenizers,
    engines' keys, certificate, model folders, and launches of engines that somebody else starts. Whatever a process
    checks of its settings, it checks by what is called here.

    Returns what the engines that `up` starts need. Raises ConfigError.
    """
    check_fleet(settings)
    _check_local(settings)
    _check_addresses(settings)
    policies.create(settings.router.policy)
    keyring.check(settings.gateway.auth)
    EngineKeys(lambda: known_token(settings), os.environ).require(settings.pools)
    certificate_of(settings.gateway.tls)
    require_launches(settings)
    served, engines = local_engines.planned(settings)
    needed = local_engine_check.check(engines)
    pools = {pool.name: pool for pool in local_engines.with_replicas(served, engines).pools}
    for model in settings.models:
        check_tokenizer(model)
        check_served(model, pools[model.pool])
    return needed


def warnings(settings: Settings) -> Iterator[str]:
    """What to tell of settings that a start takes."""
    served, engines = local_engines.planned(settings)
    for said in (estimated(served), local_engine_check.crowded(engines)):
        if said is not None:
            yield said


def estimated(settings: Settings) -> str | None:
    """Warning about models whose prompts only an engine can count; None without any."""
    names = ", ".join(model.name for model in settings.models if model.tokenizer is None)
    if not names:
        return None
    return (
        f"models without `tokenizer`: {names}; the tokens of their prompts are estimates (three bytes a token), and "
        "rate limits go by these until the engine has counted; give the folder that holds tokenizer.json"
    )


def known_token(settings: Settings) -> str:
    """The deployment's token, or what stands for the one that the first start makes."""
    # os.path: a folder that cannot be read, or cannot exist, is refused by the process that creates it
    return settings.token if os.path.exists(settings.data.token_file) else TOKEN_TO_BE_MADE  # noqa: PTH110


def _check_drafts(pool: PoolSettings, settings: Settings) -> None:
    """Engines that draft nothing cannot be governed."""
    if not pool.speculation.governed or pool.engine is None:
        return
    models = [served.model for served in served_names(settings.models, pool.name)]
    if not pool_drafting(pool.engine.speculation, models).drafts:
        field = f"pools.{pool.name}.speculation.governed"
        raise ConfigError(
            f"{field}: the engines of {pool.name!r} draft nothing (engine.speculation.method is off); set it to ngram "
            "or eagle, or governed = false",
            param=field,
        )


def _check_local(settings: Settings) -> None:
    """Nothing is said of the two models that `up` serves by itself where the settings name others."""
    if not settings.models:
        return
    usual = type(settings.local)()
    for name, instead in INSTEAD_OF_LOCAL.items():
        if getattr(settings.local, name) != getattr(usual, name):
            raise ConfigError(
                f"local.{name}: it is for the models that `up` serves where none are named, and models are given; use "
                f"{instead}, and remove it",
                param=f"local.{name}",
            )


def _check_addresses(settings: Settings) -> None:
    """What processes connect to, and whom they let carry many."""
    checked(settings.database_url, "local.database_url")
    checked(settings.migration_database_url, "local.migration_database_url")
    valkey.Address(settings.valkey_url)
    Address.parse(settings.gateway.router.address, "gateway.router.address")
    trusted_networks(settings.gateway.connections.trusted_proxies)
    checked_origins(settings.gateway.cors_origins)
