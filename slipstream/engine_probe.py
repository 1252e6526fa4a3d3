"""Asks engines whether they are as settings and fleet say: ready, the key, names, context."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import msgspec

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import ConfigError, SlipstreamError
from engines.drivers import registry
from engines.drivers.served_models import MODELS, ServedModel, parse_served_models
from engines.drivers.tensorrt_llm import TensorRTLLMDriver
from engines.http.engine_connections import EngineConnections
from engines.http.keys import EngineKeys
from slipstream import start_check
from slipstream.served_names import ServedName, served_names
from slipstream.settings import Settings

TIMEOUT_S = 10.0
HTTP_OK = 200
NOT_FOUND = 404
REFUSED = (401, 403)


class Asked(msgspec.Struct, frozen=True):
    """What is asked: the engines of these pools, for these models."""

    models: tuple[Model, ...]
    pools: tuple[Pool, ...]

    @property
    def engines(self) -> int:
        """How many are asked."""
        return sum(len(pool.replicas) for pool in self.pools)


def asked_of(settings: Settings, live: DesiredState | None = None) -> Asked:
    """live: the fleet of the deployment that runs by these settings, with what was edited since; None: none runs."""
    if live is None:
        return Asked(settings.models, settings.desired_pools)
    return Asked(live.models, live.pools)


async def probe(settings: Settings, asked: Asked | None = None) -> list[str]:
    """What each engine lacks, a sentence each, in their order; empty when all is as it says. asked: None for the
    settings' engines alone."""
    asked = asked or asked_of(settings)
    keys = EngineKeys(lambda: start_check.known_token(settings), os.environ)
    keys.follow(asked.pools)
    connections = EngineConnections(keys)
    try:
        found = await asyncio.gather(
            *(
                _faults(connections, pool, replica, list(served_names(asked.models, pool.name)))
                for pool in asked.pools
                for replica in pool.replicas
            )
        )
    finally:
        await connections.close()
    return [sentence for sentences in found for sentence in sentences]


async def _faults(
    connections: EngineConnections, pool: Pool, replica: Replica, wanted: Sequence[ServedName]
) -> list[str]:
    where = f"pools.{pool.name}.replicas.{replica.id}: {replica.url}"
    any_name = pool.driver == TensorRTLLMDriver.name  # it lists its folder's and takes any; a front lists none
    try:
        for request in (registry.of_pool(pool).health(), MODELS):
            status, body = await connections.fetch(replica.url, request, TIMEOUT_S, pool_name=pool.name)
            if status in REFUSED:
                return [f"{where} refuses the key (status {status}); see the pool's api_key_file and api_key_env"]
            if any_name and request is MODELS and status in (HTTP_OK, NOT_FOUND):
                return []
            if status != HTTP_OK:
                return [f"{where} is not ready: GET {request.path} was answered with status {status}"]
        served = parse_served_models(body)
    except ConfigError:
        raise
    except SlipstreamError as error:
        return [f"{where}: {error.message}"]
    return [f"{where} {fault}" for one in wanted for fault in _lacks(replica, served, one)]


def _lacks(replica: Replica, served: Sequence[ServedModel], wanted: ServedName) -> list[str]:
    name, context_tokens = wanted.name, wanted.model.context_tokens
    model = next((each for each in served if each.id == name), None)
    if model is None:
        names = ", ".join(repr(each.id) for each in served) or "nothing"
        return [f"serves {names}, not {name!r}; set {wanted.setting} to the name it serves"]
    promised = min(replica.context_tokens or context_tokens, context_tokens)
    if model.max_model_len is not None and model.max_model_len < promised:
        return [
            f"takes {model.max_model_len:,} tokens of {name!r}, and {promised:,} are promised; lower the model's "
            "context_tokens, or give this replica its own"
        ]
    return []
