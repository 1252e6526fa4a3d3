"""Evals of this deployment: the gateway that a worker queries, and the key that it uses."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.errors import ConfigError
from infra.local.private import folder_error, replace_file
from slipstream.processes import public_url
from slipstream.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from control.api.call import AdminCall
    from control.eval_runs.night_plan import NightPlanner
    from control.eval_runs.nights import EvalNight
    from control.eval_runs.runner import Runner
    from evals.slices.item import Source

COMMAND = "slipstream worker"
NAME = "evals"
"""The name of the project and of the key."""


def night_planner(settings: Settings) -> NightPlanner:
    """The plan of the nightly evals of this deployment's models."""
    from control.eval_runs.night_plan import NightPlanner
    from slipstream import fetched_model
    from slipstream.engine_identity import EngineIdentity

    own = {fetched_model.NAME: fetched_model.SLICES}
    return NightPlanner(settings.evals, own, EngineIdentity(settings).of)


def evals_runner(
    settings: Settings, planner: NightPlanner, show_nights: Callable[[Sequence[EvalNight]], None]
) -> Runner:
    """The runner of this deployment. show_nights: shows the last nights as metrics.

    Raises ConfigError if the certificates cannot be read. The files of questions are read when the first slice is
    needed."""
    from control.eval_runs.night_judge import NightJudge
    from control.eval_runs.runner import Runner

    config = settings.evals

    def find(name: str) -> Source:
        return config.catalogue().to_score(name)

    url = config.url or public_url(settings)
    judge = NightJudge(planner, show_nights)
    return Runner(settings.database_url, url, config, EvalsKey(settings).of, find, trusted(settings), judge)


class EvalsKey:
    """The worker's API key: the one in `evals.api_key_file`, else one that it creates and keeps in the data folder."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._setting = settings.evals.api_key_file
        self._path = Path(self._setting) if self._setting else settings.data.evals_key_file

    async def of(self, refused: str) -> str:
        """The key. refused: a key that the gateway rejects, or empty. Raises ConfigError."""
        kept = self._kept()
        if kept and kept != refused:
            return kept
        if self._setting:
            fault = "the gateway does not accept the key in it" if kept else "it holds no key"
            raise ConfigError(
                f"evals.api_key_file: {self._path}: {fault}; remove the setting, and a worker creates a key",
                param="evals.api_key_file",
            )
        from slipstream.administration import administration

        async with administration(self._settings, COMMAND) as call:
            secret = await _made(call)
            # Before the commit: a worker killed in between finds an unknown key and creates another.
            self._keep(secret)
        return secret

    def _kept(self) -> str:
        try:
            return self._path.read_text().strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise folder_error(self._path, error) from None

    def _keep(self, secret: str) -> None:
        try:
            replace_file(self._path, secret.encode())
        except OSError as error:
            raise folder_error(self._path, error) from None


async def _made(call: AdminCall) -> str:
    """The secret of a new key of the internal organization, which the first call creates."""
    from control.tenants.keys import NewKey, create_key
    from control.tenants.organizations import ORGANIZATIONS
    from gateway.auth.scopes import Scope
    from slipstream.tenants import ensure_project
    from storage.tables.evals import ORGANIZATION

    await call.connection.execute("SELECT pg_advisory_xact_lock(hashtext('slipstream internal organization'))")
    organization_id = await call.connection.fetchval("SELECT id FROM gateway.organizations WHERE internal")
    if organization_id is None:
        organization_id = (await ORGANIZATIONS.create(call, name=ORGANIZATION, internal=True)).id
    project_id, _ = await ensure_project(call, organization_id, NAME)
    made = await create_key(call, project_id, NewKey(name=NAME, scopes=[Scope.CHAT, Scope.COMPLETIONS, Scope.EVALS]))
    return made.secret


def trusted(settings: Settings) -> ssl.SSLContext | None:
    """The context that verifies the gateway's certificate; None for the system's."""
    setting, file = "evals.ca_file", settings.evals.ca_file
    if not file and not settings.evals.url:
        setting, file = "gateway.tls.certificate_file", settings.gateway.tls.certificate_file
    if not file:
        return None
    try:
        context = ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{setting}: {file}: {error}", param=setting) from None
    # Without `evals.url`, the worker uses an address of this machine, which the certificate need not name.
    context.check_hostname = bool(settings.evals.url)
    return context
