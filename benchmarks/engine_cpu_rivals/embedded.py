"""The embedded engine, `python -m slipstream engine`."""

from __future__ import annotations

import sys

from benchmarks.engine_cpu_rivals.build import said, versions
from benchmarks.engine_cpu_rivals.http_rival import NAME, HttpRival
from benchmarks.engine_cpu_rivals.process import REPOSITORY, ProcessTree
from benchmarks.engine_cpu_rivals.rival import Setup
from tests.deployment import free_port


class Embedded(HttpRival):
    """The engine with its settings from the environment; it runs in a scratch folder, where no settings file is."""

    def __init__(self, setup: Setup, settings: list[str]) -> None:
        """settings: `field=value` of the engine's configuration, such as `speculation.method=ngram`."""
        self._data = setup.scratch / "data"
        self._data.mkdir()
        environment = {"OMP_NUM_THREADS": str(setup.threads), "PYTHONPATH": str(REPOSITORY)}
        for setting in (f"threads={setup.threads}", *settings):
            field, _, value = setting.partition("=")
            environment["SLIPSTREAM_ENGINE__" + field.upper().replace(".", "__")] = value
        port = free_port()
        options = ["--model", str(setup.model), "--name", NAME, "--port", str(port), "--data", str(self._data)]
        command = [sys.executable, "-m", "slipstream", "engine", *options]
        processor = said(sys.executable, "import llvmlite.binding; print(llvmlite.binding.get_host_cpu_name())")
        packages = versions(sys.executable, "slipstream", "torch", "numba")
        build = f"{packages}; kernels for {processor}; {' '.join(settings) or 'default settings'}"
        super().__init__(ProcessTree("embedded", command, environment, setup.scratch), port, build)

    async def ready(self) -> None:
        """See Rival. The engine creates its token when it starts."""
        await super().ready()
        self._token = (self._data / "token").read_text().strip()
        if self._connections is not None:
            await self._connections.close()
            self._connections = None
