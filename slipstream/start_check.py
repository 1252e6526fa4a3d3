"""What every start looks at before it does anything, and what `up` and `slipstream config check` look at besides.

Looking only: nothing is made, not even the token that a first start would make.
"""

from __future__ import annotations

import os
from pathlib import Path

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError
from engines.drivers import registry
from engines.http.keys import EngineKeys
from engines.http.origin import Origin
from engines.tokenizer.tokenizer import Tokenizer
from gateway.admin.webhooks.queue import check_shares
from gateway.auth import keyring
from gateway.db.engine import checked
from gateway.http.certificate import certificate_of
from gateway.http.connections import trusted_networks
from gateway.limits import valkey
from router.policies import registry as policies
from router.protocol.address import Address
from slipstream import fleet
from slipstream.settings import Settings

INSTEAD_OF_LOCAL = {
    "chat_model": "models[]",
    "code_model": "models[]",
    "chat_aliases": "models[].aliases",
    "code_aliases": "models[].aliases",
    "fim": "models[].fim",
    "chat_context_tokens": "models[].context_tokens",
    "code_context_tokens": "models[].context_tokens",
    "chat_replicas": "pools[].replicas",
    "code_replicas": "pools[].replicas",
    "code_speculation": "",
}
"""Settings of the engines that `up` starts itself, and which ones those of the settings have; "": none."""
TOKEN_TO_BE_MADE = "made-by-the-first-start"
"""Stands for the token where there is none yet."""
ADDED_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1", "/health")
"""Ends of URLs as people copy them: what drivers add to a replica's URL, the longest first."""


def check_fleet(settings: Settings) -> None:
    """Raise ConfigError when models and pools contradict each other or name what there is not."""
    for pool in settings.pools:
        registry.of_pool(pool)
        _check_urls(pool)
    DesiredState(version=1, models=settings.models, pools=settings.pools).check()


def check(settings: Settings) -> None:
    """What gateways, router and workers would refuse at their start, and what their settings name: tokenizers, engines'
    keys, certificate, model folders. Whatever a process checks of its settings, it checks by what is called here.

    Raises ConfigError.
    """
    check_fleet(settings)
    _check_local(settings)
    _check_addresses(settings)
    policies.create(settings.router.policy)
    keyring.check(settings.gateway.auth)
    check_shares(settings.gateway.admin.webhooks)
    EngineKeys(lambda: known_token(settings), os.environ).require(settings.pools)
    certificate_of(settings.gateway.tls)
    pools = {pool.name: pool for pool in settings.pools}
    for model in settings.models:
        _check_tokenizer(model)
        _check_served(model, pools[model.pool])
    if not settings.models:
        fleet.model_folders(settings.local)


def estimated(settings: Settings) -> str | None:
    """What to tell of models whose prompts nobody can count before an engine has; None when there are none."""
    names = ", ".join(model.name for model in settings.models if model.tokenizer is None)
    if not names:
        return None
    return (
        f"models without `tokenizer`: {names}; the tokens of their prompts are estimates (three bytes a token), and "
        "rate limits go by these until the engine has counted; give the folder that holds tokenizer.json"
    )


def known_token(settings: Settings) -> str:
    """The deployment's token, or what stands for the one that the first start makes."""
    # os.path: a folder that cannot be looked into, or cannot be at all, is refused by whoever makes it
    return settings.token if os.path.exists(settings.data.token_file) else TOKEN_TO_BE_MADE  # noqa: PTH110


def _check_local(settings: Settings) -> None:
    """Nothing is said of engines of our own where the settings name others."""
    if not settings.models:
        return
    usual = type(settings.local)()
    for name, instead in INSTEAD_OF_LOCAL.items():
        if getattr(settings.local, name) != getattr(usual, name):
            advice = f"use {instead}" if instead else "set it where those engines are started"
            raise ConfigError(
                f"local.{name}: it is for the engines that `up` starts itself, and none is, for models are given; "
                f"{advice}, and remove it",
                param=f"local.{name}",
            )


def _check_addresses(settings: Settings) -> None:
    """What processes connect to, and whom they let carry many."""
    checked(settings.database_url, "local.database_url")
    checked(settings.migration_database_url, "local.migration_database_url")
    valkey.Address(settings.valkey_url)
    Address.parse(settings.gateway.router.address, "gateway.router.address")
    trusted_networks(settings.gateway.connections.trusted_proxies)


def _check_urls(pool: Pool) -> None:
    """What is usually mistaken: no scheme, or the URL as clients write it."""
    seen: dict[Origin, str] = {}
    for replica in pool.replicas:
        field = f"pools.{pool.name}.replicas.{replica.id}.url"
        try:
            origin = Origin.parse(replica.url)
        except ConfigError as error:
            fault = error.message.removeprefix("replica url ")
            hint = f"; did you mean http://{replica.url} ?" if "://" not in replica.url else ""
            raise ConfigError(f"{field}: {fault}{hint}", param=field) from None
        added = next((path for path in ADDED_PATHS if origin.prefix.endswith(path)), None)
        if added is not None:
            meant = replica.url.rstrip("/").removesuffix(added)
            raise ConfigError(
                f"{field}: {replica.url} ends with {added}, which is added to it; write {meant}", param=field
            )
        other = seen.setdefault(origin, replica.id)
        if other != replica.id:
            raise ConfigError(
                f"{field}: {replica.url} is that of replica {other!r} too; name an engine once", param=field
            )


def _check_served(model: Model, pool: Pool) -> None:
    """Some replica of the pool can take the longest request that the model promises."""
    if not pool.replicas:
        raise ConfigError(
            f"pools.{pool.name}.replicas: none, and models.{model.name} is to be served there; give at least one "
            "engine's id and url",
            param=f"pools.{pool.name}.replicas",
        )
    longest = max(replica.context_tokens or model.context_tokens for replica in pool.replicas)
    if longest < model.context_tokens:
        raise ConfigError(
            f"models.{model.name}.context_tokens: {model.context_tokens:,}, and no replica of pools.{pool.name} takes "
            f"more than {longest:,}; lower it, or raise a replica's context_tokens",
            param=f"models.{model.name}.context_tokens",
        )


def _check_tokenizer(model: Model) -> None:
    if model.tokenizer is None:
        return
    field = f"models.{model.name}.tokenizer"
    try:
        Tokenizer.load(Path(model.tokenizer))
    except ConfigError as error:
        raise ConfigError(f"{field}: {error.message}", param=field) from None
