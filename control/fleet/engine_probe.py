"""Checks over HTTP whether engines are ready and serve the fleet's models under their names. It also lists the models
of an engine outside the fleet, with their context."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from contracts.desired_state import Model, Pool, Replica
from contracts.errors import ConfigError, EngineFailed, SlipstreamError
from control.fleet.servable import check_pool
from control.fleet.served_names import ServedName, served_names
from engines.drivers import registry
from engines.drivers.llama_cpp import LlamaCppDriver
from engines.drivers.openai import OpenAIDriver
from engines.drivers.served_models import MODELS, PROPS, ServedModel, parse_context_tokens, parse_served_models
from engines.drivers.tensorrt_llm import TensorRTLLMDriver
from engines.http.engine_connections import EngineConnections

NAMES, NAME_CHARACTERS = 10, 100
"""Limits of the models in an error: a hostile engine can list millions."""
REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class EngineKeyRefused(EngineFailed):
    """The engine refuses a request with its key, or without one."""

    def __init__(self, status: int) -> None:
        """status: 401 or 403."""
        super().__init__(
            f"the engine requires a key (status {status}), and a probe sends none, so its models are unknown"
        )
        self.status = status


async def engine_faults(
    connections: EngineConnections,
    pools: Iterable[Pool],
    models: Sequence[Model],
    timeout_s: float,
    *,
    with_keys: bool = True,
) -> list[str]:
    """One sentence for each fault of the pools' engines, in their order. models: those that engines must serve.

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
    try:
        served = await served_models(connections, pool, replica, timeout_s)
    except EngineKeyRefused as error:
        if with_keys:
            return [f"{where} refuses the key (status {error.status}); see the pool's api_key_file and api_key_env"]
        # a key would go to any address that an administrator names
        return [f"{where}: {error.message}"] if wanted else []
    except ConfigError:
        raise
    except SlipstreamError as error:
        return [f"{where}: {error.message}"]
    if pool.driver == TensorRTLLMDriver.name:  # it lists its folder's name and accepts any; a front lists none
        return []
    return [f"{where} {fault}" for one in wanted for fault in _lacks(replica, served, one)]


async def served_models(
    connections: EngineConnections, pool: Pool, replica: Replica, timeout_s: float
) -> list[ServedModel]:
    """The models that a ready engine lists.

    Raises EngineKeyRefused, EngineFailed for an engine that is not ready, and the errors of `connections.fetch`.
    """
    for request in (registry.of_pool(pool).health(), MODELS):
        status, body = await connections.fetch(replica.url, request, timeout_s, pool_name=pool.name)
        if status in REFUSED:
            raise EngineKeyRefused(status)
        if status == HTTPStatus.NOT_FOUND and pool.driver == TensorRTLLMDriver.name and request is MODELS:
            return []
        if status != HTTPStatus.OK:
            raise EngineFailed(f"GET {request.path} returned status {status}, so it is not ready")
    return parse_served_models(body)


def _lacks(replica: Replica, served: Sequence[ServedModel], wanted: ServedName) -> list[str]:
    name, context_tokens = wanted.name, wanted.model.context_tokens
    model = next((each for each in served if each.id == name), None)
    if model is None:
        names = ", ".join(repr(each.id[:NAME_CHARACTERS]) for each in served[:NAMES]) or "nothing"
        names += f" and {len(served) - NAMES:,} others" if len(served) > NAMES else ""
        return [f"serves {names}, not {name!r}; set {wanted.setting} to the name it serves"]
    promised = min(replica.context_tokens or context_tokens, context_tokens)
    if model.max_model_len is not None and model.max_model_len < promised:
        return [
            f"accepts {model.max_model_len:,} tokens of {name!r}, but its model has {promised:,}; lower the model's "
            "context_tokens, or give this replica its own"
        ]
    return []


async def reported_models(
    connections: EngineConnections, driver: str, url: str, timeout_s: float
) -> dict[str, int | None]:
    """The models that an engine outside the fleet serves, with their context; None if the engine does not report it.

    No key is sent. Raises ConfigError for a driver or a URL that a pool could not have, and the errors of
    `served_models`.
    """
    replica = Replica(id="asked", url=url)
    pool = Pool(name="asked", driver=driver, replicas=(replica,), api_key_required=False)
    check_pool(pool)
    served = await served_models(connections, pool, replica, timeout_s)
    found = {each.id: each.max_model_len for each in served}
    if driver in (OpenAIDriver.name, LlamaCppDriver.name) and list(found.values()) == [None]:
        status, body = await connections.fetch(url, PROPS, timeout_s)
        return dict.fromkeys(found, parse_context_tokens(body) if status == HTTPStatus.OK else None)
    return found
