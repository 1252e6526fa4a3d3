"""What every start looks at before it does anything, and what `up` and `slipstream config check` look at besides.

Looking only: nothing is made, not even the token that a first start would make.
"""

from __future__ import annotations

import os

from contracts.desired_state import DesiredState
from engines.drivers import registry
from engines.http.keys import EngineKeys
from gateway.admin.webhooks.queue import check_shares
from gateway.http.certificate import certificate_of
from slipstream import fleet
from slipstream.settings import Settings

TOKEN_TO_BE_MADE = "made-by-the-first-start"
"""Stands for the token where there is none yet."""


def check_fleet(settings: Settings) -> None:
    """Raise ConfigError when models and pools contradict each other or name a driver there is not."""
    for pool in settings.pools:
        registry.of_pool(pool)
    DesiredState(version=1, models=settings.models, pools=settings.pools).check()


def check(settings: Settings) -> None:
    """All that can be known without starting: fleet, engines' keys, certificate, model folders. Raises ConfigError."""
    check_fleet(settings)
    check_shares(settings.gateway.admin.webhooks)

    def token() -> str:
        return settings.token if settings.data.token_file.exists() else TOKEN_TO_BE_MADE

    EngineKeys(token, os.environ).require(settings.pools)
    certificate_of(settings.gateway.tls)
    if not settings.models:
        fleet.model_folders(settings.local)
