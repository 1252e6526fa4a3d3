"""Checks a fleet before it is in force: dialects, URLs, keys, tokenizers, engines that are too small.

It checks settings at a start and edits before they are written, so that the author of an edit gets the refusal that a
gateway would log, if the checking machine is like the gateway's.
"""

from __future__ import annotations

from pathlib import Path

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError
from contracts.generation import Tier
from contracts.pooling import Task
from engines.drivers import registry
from engines.drivers.parameters import CHAT_TEMPLATE_KWARGS
from engines.drivers.tensorrt_llm import TensorRTLLMDriver
from engines.http.origin import Origin
from gateway.desired.pool_options import check_options

ADDED_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health")
"""Paths that drivers add to a replica's URL, and that copied URLs may already have, the longest first."""


def changed_pools(before: DesiredState, after: DesiredState) -> list[Pool]:
    """New or different pools."""
    return [pool for pool in after.pools if pool not in before.pools]


def changed_models(before: DesiredState, after: DesiredState) -> list[Model]:
    """New or different models."""
    return [model for model in after.models if model not in before.models]


def check_pool(pool: Pool) -> None:
    """Raise ConfigError for an unknown dialect, for a key that would protect nothing, and for the usual mistakes in a
    URL: no scheme, or the path that clients add."""
    registry.of_pool(pool)
    if pool.driver == TensorRTLLMDriver.name and pool.api_key_required and not (pool.api_key_file or pool.api_key_env):
        raise ConfigError(
            f"pools.{pool.name}: trtllm-serve checks no API key, so every client that reaches it may use it; set "
            "api_key_required = false if only this deployment can, or give the key that a proxy in front of it "
            "checks with api_key_file or api_key_env",
            param=f"pools.{pool.name}.api_key_required",
        )
    check_options(pool)
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
                f"{field}: {replica.url} is also the URL of replica {other!r}; list each engine once", param=field
            )


def check_served(model: Model, pool: Pool) -> None:
    """Raise ConfigError unless the pool's dialect serves the model's tier and task and its fill-in-the-middle layout,
    and one of its replicas takes the longest request that the model promises."""
    if model.fim.typed_line == "after_middle" and not registry.of_pool(pool).capabilities.token_prompts:
        raise _misplaced(
            model,
            f"the engines of pools.{pool.name} (driver {pool.driver}) take no token ids and lay gaps out themselves",
        )
    if model.chat_template_kwargs and CHAT_TEMPLATE_KWARGS not in registry.of_pool(pool).capabilities.parameters:
        field = f"models.{model.name}.chat_template_kwargs"
        raise ConfigError(
            f"{field}: pools.{pool.name} (driver {pool.driver}) does not pass them on; remove them, or add "
            f"{CHAT_TEMPLATE_KWARGS!r} to pools.{pool.name}.engine_parameters if its engines take them",
            param=field,
        )
    if pool.driver == TensorRTLLMDriver.name and model.tier is not Tier.CHAT:
        raise ConfigError(
            f"models.{model.name}.pool: pools.{pool.name} has the driver tensorrt_llm, whose completions do not "
            f"separate tenants' cached prefixes, so it can serve only the tier {Tier.CHAT.value!r}; serve this model "
            "with sglang",
            param=f"models.{model.name}.pool",
        )
    capabilities = registry.of_pool(pool).capabilities
    serves = {Task.EMBEDDING: capabilities.embeds, Task.RERANK: capabilities.scores}
    if not serves.get(model.task, True):
        raise ConfigError(
            f"models.{model.name}.task: {model.task.value!r}, but pools.{pool.name} (driver {pool.driver}) has no "
            "endpoint for it; serve it with sglang or vllm",
            param=f"models.{model.name}.task",
        )
    if not pool.replicas:
        raise ConfigError(
            f"pools.{pool.name}.replicas: empty, but models.{model.name} is served by this pool; give the id and url "
            "of at least one engine",
            param=f"pools.{pool.name}.replicas",
        )
    longest = max(replica.context_tokens or model.context_tokens for replica in pool.replicas)
    if longest < model.context_tokens:
        raise ConfigError(
            f"models.{model.name}.context_tokens: {model.context_tokens:,}, but no replica of pools.{pool.name} takes "
            f"more than {longest:,}; lower it, or raise a replica's context_tokens",
            param=f"models.{model.name}.context_tokens",
        )


def check_tokenizer(model: Model) -> None:
    """Raise ConfigError if the tokenizer's folder cannot be read here, or lacks the tokens for the model's
    fill-in-the-middle layout. Blocks, for a second with a large vocabulary."""
    after_middle = model.fim.typed_line == "after_middle"
    if model.tokenizer is None:
        if after_middle:
            raise _misplaced(model, "the model has no `tokenizer`, so its engines lay gaps out themselves")
        return
    from engines.tokenizer.tokenizer import Tokenizer  # jinja2 and tokenizers, which few processes need

    field = f"models.{model.name}.tokenizer"
    try:
        template = Tokenizer.load(Path(model.tokenizer)).fill
    except ConfigError as error:
        raise ConfigError(f"{field}: {error.message}", param=field) from None
    if after_middle and (template is None or not template.middle_ids):
        lacks = (
            "has no fill-in-the-middle tokens" if template is None else "has no middle token: the prefix stands last"
        )
        raise _misplaced(model, f"the tokenizer in {model.tokenizer} {lacks}")


def _misplaced(model: Model, reason: str) -> ConfigError:
    """The error for a model whose half-typed line cannot be where its settings put it."""
    field = f"models.{model.name}.fim.typed_line"
    return ConfigError(f"{field}: 'after_middle', but {reason}; write auto or before_middle", param=field)
