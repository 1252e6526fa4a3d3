"""Slipstream's own processes as children: the command line of each, how it shows that it serves, how it is stopped.

Every one is `python -m slipstream <command> --config FILE`, with the settings that `up` decided once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from infra.local.child import ChildSpec
from infra.local.probe import accepts, answers
from infra.local.spawn import Launch
from slipstream.fleet import Engine
from slipstream.settings import Settings
from slipstream.worker_config import Queue, ready_file

STOP_STAGES = ("gateway", "worker", "engine", "router", "valkey", "postgres")
"""Gateways first: their last requests still need everything else."""
# Whatever the user's shell says about databases is not about ours.
ENVIRONMENT = {"PGPORT": "5432", "PGOPTIONS": "", "PYTHONUNBUFFERED": "1"}


class Processes:
    """Builds the specs for one deployment on this machine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data = settings.data
        local = settings.local
        self._backoff = (local.restart_first_s, local.restart_max_s, local.stable_after_s)

    def launch(self, command: str, *arguments: str, nice: int = 0, environment: dict[str, str] | None = None) -> Launch:
        """How to run a command of our own with the deployment's settings."""
        argv = (
            sys.executable,
            "-m",
            "slipstream",
            *command.split(),
            "--config",
            str(self._data.settings_file),
            *arguments,
        )
        return Launch(argv=argv, environment={**ENVIRONMENT, **(environment or {})}, nice=nice)

    def router(self) -> ChildSpec:
        """The router; it serves once its port accepts."""
        config = self._settings.router
        return ChildSpec(
            name="router",
            launch=self.launch("router"),
            url=f"{config.host}:{config.port}",
            probe=accepts(config.host, config.port),
            stop_timeout_s=self._settings.local.stop_timeout_s + config.drain_timeout_s,
            ready_timeout_s=self._settings.local.ready_timeout_s,
            backoff=self._backoff,
        )

    def engine(self, engine: Engine) -> ChildSpec:
        """An embedded engine, niced below the gateways and kept to its threads; it serves once /health says so."""
        threads = str(self._settings.engine.threads)
        arguments = ("--model", str(engine.folder.path), "--name", engine.folder.name, "--port", str(engine.port))
        return ChildSpec(
            name=engine.name,
            launch=self.launch(
                "engine",
                *arguments,
                nice=self._settings.local.engine_nice,
                # Read when torch loads; a thread pool per core would fight the gateways and the other engine.
                environment={"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            ),
            url=engine.url,
            probe=answers("127.0.0.1", engine.port, "/health"),
            stop_timeout_s=self._settings.local.stop_timeout_s,
            ready_timeout_s=self._settings.local.ready_timeout_s,
            backoff=self._backoff,
        )

    def gateway(self, number: int) -> ChildSpec:
        """A gateway instance. All share one port, so the probe proves that one of them serves."""
        config = self._settings.gateway
        name = f"gateway-{number}"
        return ChildSpec(
            name=name,
            launch=self.launch(
                "gateway", "--instance", name, environment={"PROMETHEUS_MULTIPROC_DIR": str(self._data.metrics)}
            ),
            url=public_url(self._settings),
            probe=public_probe(self._settings, "/healthz"),
            stop_timeout_s=self._settings.local.stop_timeout_s + config.drain_timeout_s,
            ready_timeout_s=self._settings.local.ready_timeout_s,
            backoff=self._backoff,
        )

    def worker(self, queue: Queue) -> ChildSpec:
        """The background worker of a queue; it has no port, and says with a file that it takes tasks."""
        ready = ready_file(self._data, [queue])

        async def is_ready() -> bool:
            return await asyncio.to_thread(ready.exists)

        async def forget() -> None:
            await asyncio.to_thread(ready.unlink, missing_ok=True)

        return ChildSpec(
            name=f"worker-{queue.value}",
            launch=self.launch("worker", "--queue", queue.value),
            probe=is_ready,
            before_start=forget,
            stop_timeout_s=self._settings.local.stop_timeout_s,
            ready_timeout_s=self._settings.local.ready_timeout_s,
            backoff=self._backoff,
        )


def reachable(host: str) -> str:
    """An address that reaches a listener on `host` from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def public_url(settings: Settings) -> str:
    """The API's base URL, as a person on this machine would type it."""
    host = reachable(settings.gateway.host)
    scheme = "https" if _is_secure(settings) else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.gateway.port}"


def public_probe(settings: Settings, path: str) -> Callable[[], Awaitable[bool]]:
    """A check that the API answers GET `path` with status 200."""
    gateway = settings.gateway
    return answers(reachable(gateway.host), gateway.port, path, secure=_is_secure(settings))


def _is_secure(settings: Settings) -> bool:
    return bool(settings.gateway.tls.certificate_file)
