"""`slipstream up`: runs everything on this machine, started in the fastest safe order, until Ctrl-C.

Engines take longest, so they and the router start at once. The databases start in parallel, then migrations run, then
gateways and workers start. `up` waits for each; the first one that cannot start stops everything with one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from gateway.config import GatewayConfig
from infra.local.child import Child, ChildSpec
from infra.local.control import ControlServer
from infra.local.folders import DataFolder
from infra.local.lock import FolderLock
from infra.local.ports import Ports, reserve_port
from infra.local.postgres import Postgres
from infra.local.private import folder_error
from infra.local.spawn import run_once
from infra.local.supervisor import Supervisor
from infra.local.valkey import Valkey
from migrations.revision import is_newest
from router.config import RouterConfig
from slipstream import banner, engine_probe, fetched_model, launch_plan, local_engines, start_check, toml
from slipstream.database import fleet_warning, live_fleet, ownership_warning
from slipstream.fetched_model import FetchedModel, NotFetched
from slipstream.first_key import make_first_key
from slipstream.hints import command, program
from slipstream.hub_model import names_hub_model, with_hub_models
from slipstream.launch_runner import LaunchedEngines
from slipstream.metrics_targets import listed, targets_of
from slipstream.process_end import termination_signals
from slipstream.processes import STOP_STAGES, Processes, admin_url, gateway_name, names_of, public_probe, public_url
from slipstream.processor_promises import with_promises_of_this_machine
from slipstream.progress import Progress, compiles
from slipstream.replicas import replicas_of
from slipstream.settings import Settings
from slipstream.worker_config import PROCESSES
from tools.launch.text import script_of

READY_WAIT_S = 20.0
PORT_WAIT_S = 1.0
ENGINES_WAIT_S = 5.0


async def up(settings: Settings, *, probe: bool = False, quiet: bool = False, port_chosen: bool = True) -> None:
    """Start everything and run until a stop is requested. Raises ConfigError if it cannot start.

    probe: raise it also if an engine does not match the settings. port_chosen: raise it also if the gateway's port is
    taken; otherwise, pick another port.
    """
    progress = Progress(quiet=quiet)
    fetches = names_hub_model(settings)
    if not fetches:  # before anything is created, so that common mistakes cost no time and leave nothing behind
        start_check.check(settings)
    if probe and (faults := await engine_probe.probe(settings)):
        raise ConfigError("; ".join(faults))
    data = settings.data
    data.prepare()
    lock = FolderLock(data.lock_file)
    lock.acquire()
    try:
        async with _controlled(data, progress) as control:
            say = _fetching(control, progress)
            if fetches:
                settings = await with_hub_models(settings, data.models, say)
                start_check.check(settings)
            ports = Ports(data.ports_file)
            with contextlib.ExitStack() as stack:
                chosen = port_chosen or bool(settings.gateway.console.public_url)  # which names the port
                usual_port = settings.gateway.port
                settings = await _with_port(settings, ports, progress, chosen, stack)
                taken_port = usual_port if settings.gateway.port != usual_port else None
                if not settings.control.mounted:
                    # Closed at once: `slipstream control` does not share its port.
                    (await _reserved(settings.control.host, settings.control.port)).close()
                settings, model, lack = await _with_chat_model(settings, data, say)
                if model is not None:
                    stack.callback(model.close)
                for warning in start_check.warnings(settings):
                    progress.say(f"warning: {warning}")
                everything = Up(settings, data, ports, progress, control, model, lack, taken_port)
                stack.enter_context(listed(everything.targets, data.prometheus_targets))
                await everything.run()
    finally:
        lock.release()


@contextlib.asynccontextmanager
async def _controlled(data: DataFolder, progress: Progress) -> AsyncIterator[ControlServer]:
    """The control socket while this task runs. A client that stops an `up` without a supervisor cancels this task; the
    block then ends as if the task had ended."""
    task = asyncio.current_task()
    assert task is not None
    control = ControlServer(data.control_socket, task.cancel)
    await control.start()
    try:
        yield control
    except asyncio.CancelledError:
        if not control.cancelled:
            raise
        task.uncancel()
        progress.say("stopped")
    finally:
        await control.stop()


def _fetching(control: ControlServer, progress: Progress) -> Callable[[str], None]:
    """A function that reports the progress of a fetch here and to clients of the control socket."""

    def say(text: str) -> None:
        begins = text.startswith("fetching")
        control.preparing = text if begins else f"{control.preparing.partition(':')[0]}: {text.strip()}"
        progress.say(text)

    return say


async def _with_chat_model(
    settings: Settings, data: DataFolder, say: Callable[[str], None]
) -> tuple[Settings, FetchedModel | None, str | None]:
    """The settings with a chat model, the fetched model, and the reason if there is none. Settings that name a model
    stay unchanged."""
    local = settings.local
    if settings.models or local.chat_model is not None or not local.fetch_chat_model:
        return settings, None, None
    model = None
    try:
        model = await fetched_model.fetched(data.models, say)
        local = msgspec.structs.replace(local, chat_model=str(model.path))
        chosen = msgspec.structs.replace(settings, local=local)
        start_check.check(chosen)
    except (NotFetched, ConfigError) as error:
        if model is not None:
            model.close()
        say(f"warning: the chat model {fetched_model.NAME} is not served: {error}")
        return settings, None, str(error)
    return chosen, model, None


class Up:
    """One run of one deployment on this machine, under its data folder's lock."""

    def __init__(
        self,
        settings: Settings,
        data: DataFolder,
        ports: Ports,
        progress: Progress,
        control: ControlServer,
        model: FetchedModel | None = None,
        lack: str | None = None,
        taken_port: int | None = None,
    ) -> None:
        """model: the fetched chat model, kept on the disk while this runs. lack: the reason if there is none.
        taken_port: the gateway's usual port, if another program has it."""
        self._control = control
        self._model = model
        self._lack = lack
        self._taken_port = taken_port
        launched = launch_plan.local_pools(settings)
        settings = launch_plan.with_replicas(settings, ports.pick)
        settings, engines = local_engines.planned(settings)
        settings = with_promises_of_this_machine(settings)
        self._engines = local_engines.placed(engines, ports)
        self._settings = _effective(local_engines.with_replicas(settings, self._engines), data, ports)
        self._launched = launch_plan.plan_launches(self._settings, launched)
        self.targets = targets_of(self._settings, names_of(self._settings, self._engines), ports)
        """The metrics addresses of our processes."""
        ports.save()
        self._data = data
        self._progress = progress
        self._processes = Processes(self._settings, self.targets)
        self._supervisor = Supervisor(data, self._settings.local, progress.say)
        self._postgres = None if settings.local.database_url else Postgres(data, settings.local)

    async def run(self) -> None:
        """Start, wait, stop. Every child is stopped in order, whatever happens."""
        _write_settings(self._data.settings_file, self._settings)
        for engine in self._engines:
            engine_settings = msgspec.structs.replace(self._settings, engine=engine.config)
            _write_settings(self._data.engine_settings_file(engine.name), engine_settings)
        for each in self._launched:
            _write(self._data.engine_script(each.name), script_of(each.spec))
        self._listen_for_signals()
        starting = asyncio.create_task(self._start(), name="start")
        launched = LaunchedEngines(self._launched, self._supervisor, self._processes, self._progress)
        loading = asyncio.create_task(launched.start(), name="start of launched engines")
        stopping = asyncio.create_task(self._supervisor.stop_requested.wait(), name="stop requested")
        try:
            self._control.supervise(self._supervisor, public_url(self._settings))
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                print(await starting, flush=True)
                await stopping
            self._progress.say(
                f"stopping: running requests may finish, for {self._settings.gateway.drain_timeout_s:g} s at most; "
                "a second Ctrl-C cuts them off, and their usage is not billed"
            )
        finally:
            tasks = (starting, stopping, loading)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._supervisor.stop(STOP_STAGES)
            if self._postgres is not None:
                self._postgres.close()
        self._progress.say("stopped")

    async def _start(self) -> str:
        """Start everything and return the final text."""
        started_at = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for engine in self._engines:
                    group.create_task(self._engine(self._supervisor.add(self._kept(self._processes.engine(engine)))))
                group.create_task(self._child(self._supervisor.add(self._processes.router())))
                group.create_task(self._databases_then_gateways())
        except BaseExceptionGroup as errors:
            raise _cause(errors) from None
        await self._take_requests()
        self._progress.say(f"{'ready':<34}{time.monotonic() - started_at:6.1f} s")
        settings = self._settings
        key, fleet, *_ = await asyncio.gather(
            make_first_key(settings), live_fleet(settings), self._warn_of_owner(), self._warn_of_engines()
        )
        return banner.render(
            public_url(settings),
            settings.models if fleet is None else fleet.models,
            settings.pools if fleet is None else fleet.pools,
            key.secret,
            key_held=key.held,
            admin_key=key.admin_secret,
            console_link=key.console_link,
            console=self._settings.gateway.console.enabled,
            admin_url=admin_url(settings),
            make_key=command("keys create"),
            make_link=command("console link"),
            program=program(),
            lack=self._lack,
            taken_port=self._taken_port,
        )

    async def _warn_of_owner(self) -> None:
        self._warn(await ownership_warning(self._settings))

    async def _take_requests(self) -> None:
        """Wait until a gateway is ready for requests: it knows keys, models and the router."""
        is_ready = public_probe(self._settings, "/readyz")
        with contextlib.suppress(TimeoutError):  # it serves and reports what it lacks: no reason to stop it
            async with asyncio.timeout(READY_WAIT_S):
                while not await is_ready():  # noqa: ASYNC110  another process has no event to wait for
                    await asyncio.sleep(0.05)

    async def _warn_of_engines(self) -> None:
        """Print which engines are unusable and why, once the router has probed each. For our own engines, which have
        just started, wait until the router knows that they serve."""
        ours = {engine.name for engine in self._engines}
        deadline = time.monotonic() + ENGINES_WAIT_S
        while (found := await asyncio.to_thread(replicas_of, self._settings)) is None or not all(
            replica.known and (replica.usable or replica.id not in ours) for replica in found
        ):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)  # waits for the router
        loading = {engine.name for engine in self._launched}
        for replica in found or ():
            if not replica.usable and replica.id not in loading:
                self._progress.say(f"warning: engine {replica.id} at {replica.url} is not usable: {replica.state}")

    async def _databases_then_gateways(self) -> None:
        serve = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._migrate(serve))
            async with asyncio.TaskGroup() as databases:
                databases.create_task(self._start_postgres())
                databases.create_task(self._start_valkey())
            serve.set()
        # Before a gateway starts: after it, only its log shows which edits its settings undid.
        self._warn(await fleet_warning(self._settings, gateway_name(1)))
        numbers = range(1, self._settings.local.gateways + 1)
        workers = (self._processes.worker(queues) for queues in PROCESSES)
        control = () if self._settings.control.mounted else (self._processes.control(),)
        specs = [*workers, *control, *(self._kept(self._processes.gateway(number)) for number in numbers)]
        async with asyncio.TaskGroup() as group:
            for spec in specs:
                group.create_task(self._child(self._supervisor.add(spec)))

    async def _migrate(self, serve: asyncio.Event) -> None:
        """Migrate the database to the newest revision. serve: set once the databases serve."""
        settings, log = self._settings, self._data.log("migrate")
        migrating: asyncio.Task[bytes] | None = None
        # The process that creates a new cluster's tables loads while the cluster is created.
        if self._postgres is not None and self._postgres.is_new:
            launch = self._processes.launch("config migrate up", "--wait")
            migrating = asyncio.create_task(run_once(launch, log, proceed=serve), name="migrations")
        try:
            await serve.wait()
            if migrating is None:
                if await is_newest(settings.migration_database_url, settings.database_url):
                    return
                migrating = asyncio.create_task(
                    run_once(self._processes.launch("config migrate up"), log), name="migrations"
                )
            await self._progress.step("migrations", "done", migrating)
        finally:
            if migrating is not None:
                migrating.cancel()

    async def _start_postgres(self) -> None:
        if self._postgres is None:
            self._progress.say("postgres                by URL")
            return
        if self._postgres.is_new:
            await self._progress.step("database folder", "made", asyncio.to_thread(self._postgres.prepare))
        else:
            self._postgres.prepare()
        await self._child(self._supervisor.add(self._postgres.spec()))

    async def _start_valkey(self) -> None:
        if self._settings.local.valkey_url != self._data.valkey_url:
            self._progress.say("valkey                  by URL")
            return
        await self._child(self._supervisor.add(Valkey(self._data).spec()))

    def _warn(self, warning: str | None) -> None:
        if warning is not None:
            self._progress.say(f"warning: {warning}")

    def _kept(self, spec: ChildSpec) -> ChildSpec:
        """The process with a start hook that restores a removed model file."""
        if self._model is None:
            return spec
        return msgspec.structs.replace(spec, before_start=self._model.restoring(spec.before_start))

    async def _engine(self, child: Child) -> None:
        reporting = asyncio.create_task(self._tell_of_kernels(child))
        try:
            await self._child(child)
        finally:
            reporting.cancel()

    async def _tell_of_kernels(self, child: Child) -> None:
        await compiles(child.log)
        self._progress.say(f"{child.spec.name:<24}compiling its kernels: 10 to 20 s of one core, then they are cached")

    async def _child(self, child: Child) -> None:
        await self._progress.step(child.spec.name, "ready", child.ready(), lambda: child.cpu_s)

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if self._supervisor.stop_requested.is_set():
                # The second request: exit now. The kernel ends our children with us, and no commit is lost.
                print("  cut off: running requests were ended early and are not billed", file=sys.stderr, flush=True)
                os._exit(130)
            self._supervisor.stop_requested.set()

        for number in (signal.SIGINT, *termination_signals()):
            loop.add_signal_handler(number, stop)


async def _with_port(
    settings: Settings, ports: Ports, progress: Progress, chosen: bool, stack: contextlib.ExitStack
) -> Settings:
    """The settings with a port on which only this deployment's gateways can listen while `stack` is open.

    Raises ConfigError if no port is free, or if a chosen one is taken.
    """
    host, port = settings.gateway.host, settings.gateway.port
    try:
        stack.enter_context(await _reserved(host, port))
    except ConfigError:
        if chosen:
            raise
    else:
        return settings
    free = ports.pick("gateway")
    stack.enter_context(await _reserved(host, free))
    progress.say(f"port {port} is in use by another program: the gateway listens on {free}; choose one with --port")
    return msgspec.structs.replace(settings, gateway=msgspec.structs.replace(settings.gateway, port=free))


async def _reserved(host: str, port: int) -> contextlib.ExitStack:
    """Reserve the port. Gateways of a killed predecessor may hold it a moment longer. Raises ConfigError after that."""
    deadline = time.monotonic() + PORT_WAIT_S
    while True:
        try:
            return reserve_port(host, port)
        except ConfigError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


def _effective(settings: Settings, data: DataFolder, ports: Ports) -> Settings:
    """The settings for every process, with absolute paths and with all URLs and ports."""
    local = msgspec.structs.replace(
        settings.local,
        data=str(data.path),
        database_url=settings.database_url,
        migration_database_url=settings.migration_database_url,
        valkey_url=settings.valkey_url,
    )
    router = settings.router
    if router.port in (0, RouterConfig().port):  # the user did not choose it: deployments on one machine must not clash
        router = msgspec.structs.replace(router, port=ports.pick("router"))
    if router.control_port in (0, RouterConfig().control_port):
        router = msgspec.structs.replace(router, control_port=ports.pick("router control"))
    router = msgspec.structs.replace(router, socket=router.socket or str(data.router_socket))
    client = msgspec.structs.replace(settings.gateway.router, address=f"unix:{router.socket}")
    limits = msgspec.structs.replace(settings.gateway.limits, expected_instances=local.gateways)
    files = settings.gateway.tls
    tls = msgspec.structs.replace(
        files, certificate_file=_absolute(files.certificate_file), key_file=_absolute(files.key_file)
    )
    gateway = msgspec.structs.replace(settings.gateway, router=client, limits=limits, tls=tls)
    if gateway.leave_after_s == GatewayConfig().leave_after_s:  # the user did not choose it: there is no load balancer
        gateway = msgspec.structs.replace(gateway, leave_after_s=0.0)
    audit = msgspec.structs.replace(settings.worker.audit, heads_folder=str(settings.audit_heads.absolute()))
    worker = msgspec.structs.replace(settings.worker, audit=audit)
    return msgspec.structs.replace(settings, local=local, router=router, gateway=gateway, worker=worker)


def _absolute(file: str) -> str:
    return str(Path(file).absolute()) if file else ""


def _write_settings(path: Path, settings: Settings) -> None:
    head = "# Written by `slipstream up` for its processes at every start; changes here are lost.\n"
    _write(path, head + toml.dump(settings))


def _write(path: Path, text: str) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise folder_error(path, error) from None


def _cause(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to show: the first ConfigError, which is a sentence for the user, else the whole group."""
    matching = errors.subgroup(ConfigError)
    if matching is None:
        return errors
    first: BaseException = matching
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
