"""Checks engines over HTTP: whether they are ready, and serve the fleet's models under their names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from contracts.desired_state import Model, Pool, Replica
from contracts.errors import ConfigError, SlipstreamError
from control.fleet.served_names import ServedName, served_names
from engines.drivers import registry
from engines.drivers.served_models import MODELS, ServedModel, parse_served_models
from engines.drivers.tensorrt_llm import TensorRTLLMDriver
from engines.http.engine_connections import EngineConnections

REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


async def engine_faults(
    connections: EngineConnections,
    pools: Iterable[Pool],
    models: Sequence[Model],
    timeout_s: float,
    *,
    with_keys: bool = True,
) -> list[str]:
    """One sentence for each fault of the pools' engines, in their order. models: those that the engines must serve.

    with_keys: whether `connections` sends the engines' keys.
    Raises ConfigError for a key that cannot be read.
    """
    found = await asyncio.gather(
        *(
            _faults(connections, pool, replica, list(served_names(models, pool.name)), timeout_s, with_keys)
            for pool in pools
            for replica in pool.replicas
        )
    )
    return [sentence for sentences in found for sentence in sentences]


async def _faults(
    connections: EngineConnections,
    pool: Pool,
    replica: Replica,
    wanted: Sequence[ServedName],
    timeout_s: float,
    with_keys: bool,
) -> list[str]:
    where = f"pools.{pool.name}.replicas.{replica.id}: {replica.url}"
    any_name = pool.driver == TensorRTLLMDriver.name  # it lists its folder's and takes any; a front lists none
    try:
        for request in (registry.of_pool(pool).health(), MODELS):
            status, body = await connections.fetch(replica.url, request, timeout_s, pool_name=pool.name)
            if status in REFUSED:
                if with_keys:
                    return [f"{where} refuses the key (status {status}); see the pool's api_key_file and api_key_env"]
                # a key would go to whichever address an administrator names
                unknown = f"{where} wants a key (status {status}), and a probe sends none: its models are not known"
                return [unknown] if wanted else []
            if any_name and request is MODELS and status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
                return []
            if status != HTTPStatus.OK:
                return [f"{where} is not ready: GET {request.path} returned status {status}"]
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
            f"takes {model.max_model_len:,} tokens of {name!r}, and its model has {promised:,}; lower the model's "
            "context_tokens, or give this replica its own"
        ]
    return []
