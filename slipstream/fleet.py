"""What `up` serves when the settings name no models: one embedded pool per tier, on the folders that were chosen."""

from __future__ import annotations

import msgspec

from contracts.desired_state import Model, Pool, Replica
from contracts.errors import ConfigError
from contracts.generation import Tier
from infra.local.config import LocalConfig
from infra.local.ports import Ports
from slipstream import model_folder
from slipstream.model_folder import ModelFolder

DRIVER = "embedded"


class Engine(msgspec.Struct, frozen=True):
    """One embedded engine process to start."""

    name: str
    folder: ModelFolder
    port: int
    context_tokens: int
    speculation: str
    """The method of its drafts, where the settings of all engines name none."""

    @property
    def url(self) -> str:
        """Where gateways and router reach it."""
        return f"http://127.0.0.1:{self.port}"


class EmbeddedFleet(msgspec.Struct, frozen=True):
    """Models and pools for desired state, and the processes behind them."""

    models: tuple[Model, ...]
    pools: tuple[Pool, ...]
    engines: tuple[Engine, ...]


def model_folders(config: LocalConfig) -> tuple[ModelFolder, ModelFolder]:
    """The folders of the chat and of the code model. Raises ConfigError."""
    chat = model_folder.read(config.chat_model, "slipstream-chat", "local.chat_model", needs_chat_template=True)
    code = model_folder.read(config.code_model, "slipstream-code", "local.code_model", needs_chat_template=False)
    if chat.name == code.name:
        raise ConfigError(
            f"local.code_model: both tiers' folders are called {chat.name!r} and clients choose by name; rename one",
            param="local.code_model",
        )
    return chat, code


def embedded(config: LocalConfig, ports: Ports, context_tokens: int = 0) -> EmbeddedFleet:
    """Read the model folders and give every engine a port.

    context_tokens: the engines' own limit (0: as the models were made). Raises ConfigError.
    """
    chat, code = model_folders(config)
    models, pools, engines = [], [], []
    for tier, folder, replicas, own_limit, drafts in (
        (Tier.CHAT, chat, config.chat_replicas, config.chat_context_tokens, "off"),
        (Tier.AUTOCOMPLETE, code, config.code_replicas, config.code_context_tokens, config.code_speculation),
    ):
        limit = min(given for given in (own_limit, context_tokens, folder.context_tokens) if given)
        processes = [
            Engine(f"engine-{tier}-{number}", folder, ports.pick(f"engine-{tier}-{number}"), limit, drafts)
            for number in range(1, replicas + 1)
        ]
        model = Model(name=folder.name, tier=tier, pool=tier, context_tokens=limit, tokenizer=str(folder.path))
        aliases, fim = (config.chat_aliases, model.fim) if tier is Tier.CHAT else (config.code_aliases, config.fim)
        models.append(msgspec.structs.replace(model, aliases=aliases, fim=fim))
        places = tuple(Replica(id=p.name, url=p.url) for p in processes)
        pools.append(Pool(tier, DRIVER, places, price_per_replica_hour=config.price_per_replica_hour))
        engines += processes
    return EmbeddedFleet(tuple(models), tuple(pools), tuple(engines))
