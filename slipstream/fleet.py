"""The models and pools to serve: those of the settings or, if they name none, one model for each tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from contracts.desired_state import Model
from contracts.errors import ConfigError
from contracts.generation import Tier
from engines.embedded.config import EngineConfig
from infra.local.config import LocalConfig
from slipstream import fetched_model, model_folder
from slipstream.model_folder import ModelFolder
from slipstream.pool_settings import DRIVER, PoolSettings
from slipstream.settings import Settings
from speculative.config import SpeculationConfig

ABOUT = {
    "slipstream-chat": "3.7 million parameters, for trials and tests: it knows the few kinds of tasks of its training "
    "(facts, lists, sums, JSON, short functions), and answers everything else with nonsense.",
    "slipstream-code": "5.2 million parameters: its Python completions look plausible and are seldom right.",
}
"""Descriptions of the models that come with Slipstream."""
Method = Literal["off", "ngram", "eagle"]
"""Methods that make drafts; `auto` resolves to one of these."""


def model_folders(config: LocalConfig) -> tuple[ModelFolder, ModelFolder]:
    """The folders of the chat model and the code model. Raises ConfigError."""
    chat = model_folder.read(config.chat_model, "slipstream-chat", "local.chat_model", needs_chat_template=True)
    code = model_folder.read(config.code_model, "slipstream-code", "local.code_model", needs_chat_template=False)
    if chat.name == code.name:
        raise ConfigError(
            f"local.code_model: both tiers' folders are called {chat.name!r} and clients choose by name; rename one",
            param="local.code_model",
        )
    return chat, code


def with_models(settings: Settings) -> Settings:
    """The settings with models: if they name none, one for each tier, each with its own pool.

    Raises ConfigError for an unusable model folder.
    """
    if settings.models:
        return settings
    local = settings.local
    models, pools = [], []
    chat, code = model_folders(local)
    tiers: tuple[tuple[Tier, ModelFolder, int, int, Method], ...] = (
        (Tier.CHAT, chat, local.chat_replicas, local.chat_context_tokens, "off"),
        (Tier.AUTOCOMPLETE, code, local.code_replicas, local.code_context_tokens, local.code_speculation),
    )
    for tier, folder, replicas, own_limit, drafts in tiers:
        _require_within(folder, own_limit, "chat" if tier is Tier.CHAT else "code")
        engine = _engine(settings.engine, folder, own_limit, drafts)
        model = Model(
            name=folder.name,
            tier=tier,
            pool=tier,
            context_tokens=engine.context_tokens,
            description=_about(folder),
            tokenizer=str(folder.path),
        )
        aliases, fim = (local.chat_aliases, model.fim) if tier is Tier.CHAT else (local.code_aliases, local.fim)
        models.append(msgspec.structs.replace(model, aliases=aliases, fim=fim))
        price = local.price_per_replica_hour
        pools.append(PoolSettings(tier, DRIVER, price_per_replica_hour=price, engine=engine, local_replicas=replicas))
    return msgspec.structs.replace(settings, models=tuple(models), pools=tuple(pools))


def _about(folder: ModelFolder) -> str:
    """The default description of a model; empty for a user's own."""
    if folder.path.parent == model_folder.SHIPPED:
        return ABOUT.get(folder.name, "")
    return fetched_model.ABOUT if _is_fetched(folder) else ""


def pool_drafting(speculation: SpeculationConfig, models: Sequence[Model]) -> SpeculationConfig:
    """The speculation of engines that `up` starts for these models. By default, engines that serve only the
    autocomplete tier draft by n-grams, because completions quote their files."""
    autocomplete = bool(models) and all(model.tier is Tier.AUTOCOMPLETE for model in models)
    return drafting(speculation, "ngram" if autocomplete else "off")


def drafting(speculation: SpeculationConfig, usual: Method) -> SpeculationConfig:
    """The settings with a method. usual: the method for `auto`."""
    return msgspec.structs.replace(speculation, method=usual) if speculation.method == "auto" else speculation


def _require_within(folder: ModelFolder, own_limit: int, name: str) -> None:
    """Refuse a limit above the model's context. `engine.context_tokens` may be above it: it is one bound for all."""
    if own_limit > folder.context_tokens:
        field = f"local.{name}_context_tokens"
        raise ConfigError(
            f"{field}: {own_limit:,}, but {folder.name} supports only {folder.context_tokens:,} "
            "(max_position_embeddings in its config.json); set at most that, or 0 for all of it",
            param=field,
        )


def _engine(of_all: EngineConfig, folder: ModelFolder, own_limit: int, drafts: Method) -> EngineConfig:
    """The engine of a tier. own_limit: its context limit, 0 for none. drafts: its method, unless `engine` names one."""
    limit = min(each for each in (own_limit, of_all.context_tokens, folder.context_tokens) if each)
    speculation = drafting(of_all.speculation, drafts)
    own = msgspec.structs.replace(of_all, model=str(folder.path), context_tokens=limit, speculation=speculation)
    if not _is_fetched(folder):
        return own
    temperature = fetched_model.TEMPERATURE if own.temperature is None else own.temperature
    top_p = fetched_model.TOP_P if own.top_p is None else own.top_p
    cached = fetched_model.CACHED_BYTES if own.kv.cached_bytes is None else own.kv.cached_bytes
    kv = msgspec.structs.replace(own.kv, cached_bytes=cached)
    penalty = fetched_model.FREQUENCY_PENALTY if own.frequency_penalty is None else own.frequency_penalty
    return msgspec.structs.replace(own, temperature=temperature, top_p=top_p, frequency_penalty=penalty, kv=kv)


def _is_fetched(folder: ModelFolder) -> bool:
    """Whether it is the file that `up` fetches; a folder of this name is a user's own model."""
    return folder.path.name == f"{fetched_model.NAME}.gguf"
