"""Slipstream's processes as children: the command line of each, its readiness probe, and how it is stopped.

Each runs `python -m slipstream <command> --config FILE` with the settings that `up` wrote once; an embedded engine has
its own file with its own `[engine]`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from contracts.errors import ConfigError
from infra.local.child import ChildSpec
from infra.local.probe import accepts, answers
from infra.local.spawn import Launch
from slipstream.local_engines import Engine
from slipstream.metrics_targets import Target
from slipstream.settings import Settings, reachable
from slipstream.worker_config import PROCESSES, Queue, ready_file

if TYPE_CHECKING:
    from slipstream.launch_plan import LocalLaunch

STOP_STAGES = (("gateway", "control"), ("worker", "engine", "router"), ("valkey", "postgres"))
"""Gateways stop first: their last requests still need everything else. The next ones need the databases, but not one
another: a worker's task treats a stopped engine like one that is down."""
LAUNCH_READY_TIMEOUT_S = 3_600.0
"""Time to download and read weights of hundreds of gigabytes, and to compile kernels."""
LAUNCH_PROBE_S = 0.5
"""Pause between readiness probes: the engine logs a line for each."""
# The database variables of the user's shell are not for our databases.
ENVIRONMENT = {"PGPORT": "5432", "PGOPTIONS": "", "PYTHONUNBUFFERED": "1"}


class Processes:
    """Builds the specifications of the children for one deployment on this machine."""

    def __init__(self, settings: Settings, targets: Sequence[Target]) -> None:
        """targets: the metrics addresses of the processes."""
        self._settings = settings
        self._metrics_port = {target.name: target.port for target in targets}
        self._data = settings.data
        self._json_log = settings.logging.format == "json"

    def launch(
        self,
        command: str,
        *arguments: str,
        nice: int = 0,
        environment: dict[str, str] | None = None,
        settings_file: Path | None = None,
    ) -> Launch:
        """The launch of one of our commands. settings_file: settings other than the deployment's."""
        argv = (
            sys.executable,
            "-m",
            "slipstream",
            *command.split(),
            "--config",
            str(settings_file or self._data.settings_file),
            *arguments,
        )
        return Launch(argv=argv, environment={**ENVIRONMENT, **(environment or {})}, nice=nice)

    def _serving(self, name: str, command: str, *arguments: str, **more: Any) -> Launch:
        """The launch of the process with this name, with its metrics port."""
        return self.launch(command, *arguments, "--metrics-port", str(self._metrics_port[name]), **more)

    def router(self) -> ChildSpec:
        """The router; it is ready once its port accepts connections."""
        config = self._settings.router
        return ChildSpec(
            name="router",
            launch=self._serving("router", "router"),
            url=f"{config.host}:{config.port}",
            probe=accepts(config.host, config.port),
            drain_s=config.drain_timeout_s,
            json_log=self._json_log,
        )

    def engine(self, engine: Engine) -> ChildSpec:
        """An embedded engine, niced below the gateways and limited to its threads; ready once /health returns 200."""
        from slipstream.progress import is_compiling

        threads = str(engine.config.threads)
        return ChildSpec(
            name=engine.name,
            launch=self._serving(
                engine.name,
                "engine",
                nice=self._settings.local.engine_nice,
                # torch reads them when it loads; a thread per core would compete with gateways and other engines.
                environment={"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
                settings_file=self._data.engine_settings_file(engine.name),
            ),
            url=engine.url,
            probe=answers(reachable(engine.config.host), engine.config.port, "/health"),
            at_work=is_compiling,
            json_log=self._json_log,
        )

    def launched(self, engine: LocalLaunch) -> ChildSpec:
        """An engine of another project, started by its script; ready once /health returns 200."""
        from engines.http.port_owner import listening_uids, stranger, taken_by
        from slipstream.engine_log import failure_line

        url = urlsplit(engine.replica.url)
        host, port = url.hostname or "", url.port or 0
        probe = answers(host, port, "/health")

        async def require_own_port() -> None:
            uids = await asyncio.to_thread(listening_uids, host, port)
            if account := stranger(uids or set()):
                raise ConfigError(taken_by(port, account))

        async def is_ready() -> bool:
            await require_own_port()
            if await probe():
                return True
            await asyncio.sleep(LAUNCH_PROBE_S)  # waits for another process
            return False

        async def require_startable() -> None:
            if engine.unavailable_reason:
                raise ConfigError(engine.unavailable_reason)
            await require_own_port()

        return ChildSpec(
            name=engine.name,
            # in a folder without a package that has an engine's name
            launch=Launch(argv=("/bin/sh", str(self._data.engine_script(engine.name))), folder=str(self._data.run)),
            url=engine.replica.url,
            probe=is_ready,
            before_start=require_startable,
            ready_timeout_s=LAUNCH_READY_TIMEOUT_S,
            telling_line=failure_line,
        )

    def gateway(self, number: int) -> ChildSpec:
        """A gateway instance. All share one port, so the probe shows only that one of them serves."""
        config = self._settings.gateway
        name = gateway_name(number)
        return ChildSpec(
            name=name,
            launch=self._serving(name, "gateway", "--instance", name),
            url=public_url(self._settings),
            probe=public_probe(self._settings, "/healthz"),
            drain_s=config.leave_after_s + config.drain_timeout_s,
            json_log=self._json_log,
        )

    def control(self) -> ChildSpec:
        """The control plane at its own address; ready once /healthz returns 200."""
        address = self._settings.control
        return ChildSpec(
            name="control",
            launch=self.launch("control"),
            url=admin_url(self._settings),
            probe=answers(reachable(address.host), address.port, "/healthz", secure=_is_secure(self._settings)),
            drain_s=self._settings.gateway.leave_after_s + self._settings.gateway.admin.timeout_s,
            json_log=self._json_log,
        )

    def worker(self, queues: Sequence[Queue]) -> ChildSpec:
        """The background worker of these queues. It has no port; a file shows that it accepts tasks."""
        ready, name = ready_file(self._data, queues), worker_name(queues)
        served = [part for queue in queues for part in ("--queue", queue.value)]

        async def is_ready() -> bool:
            return await asyncio.to_thread(ready.exists)

        async def forget() -> None:
            await asyncio.to_thread(ready.unlink, missing_ok=True)

        return ChildSpec(
            name=name,
            launch=self._serving(name, "worker", *served),
            probe=is_ready,
            before_start=forget,
            json_log=self._json_log,
        )


def gateway_name(number: int) -> str:
    """The name of a gateway's process and of its journal."""
    return f"gateway-{number}"


def worker_name(queues: Sequence[Queue]) -> str:
    """The name of the process that serves the queues: `worker` for all of them, else with its first queue."""
    return "worker" if set(queues) == set(Queue) else f"worker-{queues[0].value}"


def names_of(settings: Settings, engines: Sequence[Engine]) -> dict[str, list[str]]:
    """The names of all our processes, by their section of the settings."""
    return {
        "gateway": [gateway_name(number) for number in range(1, settings.local.gateways + 1)],
        "router": ["router"],
        "engine": [engine.name for engine in engines],
        "worker": [worker_name(queues) for queues in PROCESSES],
    }


def public_url(settings: Settings) -> str:
    """The API's base URL for a user on this machine."""
    return _url(settings, settings.gateway.host, settings.gateway.port)


def admin_url(settings: Settings) -> str:
    """The base URL of the admin API and the console."""
    address = settings.control
    return public_url(settings) if address.mounted else _url(settings, address.host, address.port)


def _url(settings: Settings, host: str, port: int) -> str:
    host = reachable(host)
    scheme = "https" if _is_secure(settings) else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def public_probe(settings: Settings, path: str) -> Callable[[], Awaitable[bool]]:
    """A check that the API answers GET `path` with status 200."""
    gateway = settings.gateway
    return answers(reachable(gateway.host), gateway.port, path, secure=_is_secure(settings))


def _is_secure(settings: Settings) -> bool:
    return bool(settings.gateway.tls.certificate_file)
