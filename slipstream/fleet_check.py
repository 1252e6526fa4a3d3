"""Checks that every process makes first: models and pools must not contradict each other, as far as settings show.
`start_check.py` checks the rest, for which it imports the planner, the launches and the router's policies.
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
"""Placeholder for the token until it exists."""


def check_fleet(settings: Settings) -> None:
    """Raises ConfigError if models and pools contradict each other or refer to something that does not exist."""
    for pool in settings.pools:
        check_pool(pool)
        _check_drafts(pool, settings)
    DesiredState(version=1, models=settings.models, pools=settings.desired_pools).check()


def estimated(settings: Settings) -> str | None:
    """The warning about models whose prompts only an engine can count; None if there are none."""
    names = ", ".join(model.name for model in settings.models if model.tokenizer is None)
    if not names:
        return None
    return (
        f"models without `tokenizer`: {names}; the tokens of their prompts are estimates (three bytes a token), and "
        "rate limits go by these until the engine has counted; give the folder that holds tokenizer.json"
    )


def known_token(settings: Settings) -> str:
    """The deployment's token, or the placeholder for the one that the first start makes."""
    # os.path, not Path: the process that creates the folder reports one that cannot be read or cannot exist.
    return settings.token if os.path.exists(settings.data.token_file) else TOKEN_TO_BE_MADE  # noqa: PTH110


def _check_drafts(pool: PoolSettings, settings: Settings) -> None:
    """Raises ConfigError for governed drafts of engines that draft nothing."""
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
