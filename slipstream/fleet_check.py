"""What every process looks at before it does anything: models and pools that contradict each other, as far as settings
show it. `start_check.py` looks at the rest, for which it imports the planner, the launches and the router's policies.
"""

from __future__ import annotations

import os

from contracts.desired_state import DesiredState
from contracts.errors import ConfigError
from control.fleet.servable import check_pool
from control.fleet.served_names import served_names
from slipstream.fleet import pool_drafting
from slipstream.pool_settings import PoolSettings
from slipstream.settings import Settings

TOKEN_TO_BE_MADE = "made-by-the-first-start"
"""Stands for the token where there is none yet."""


def check_fleet(settings: Settings) -> None:
    """Raise ConfigError when models and pools contradict each other or name what there is not."""
    for pool in settings.pools:
        check_pool(pool)
        _check_drafts(pool, settings)
    DesiredState(version=1, models=settings.models, pools=settings.desired_pools).check()


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
