"""llama.cpp with its own HTTP server, from the xllamacpp wheel; one rival per number format."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.engine_cpu_rivals.build import said, versions
from benchmarks.engine_cpu_rivals.http_rival import HttpRival
from benchmarks.engine_cpu_rivals.process import ProcessTree
from benchmarks.engine_cpu_rivals.rival import Missing, Setup
from engines.gguf.file import is_gguf
from tests.deployment import free_port

WORKERS = Path(__file__).parent / "workers"


class LlamaCpp(HttpRival):
    """Serves a GGUF file, made from the model folder where needed, with a slot for every concurrent request."""

    def __init__(self, setup: Setup, venv: str | None, kind: str) -> None:
        """kind: `f16` or `q8_0` for a file made from a folder; `file` for a GGUF file as it is."""
        python = str(Path(venv or "", "bin", "python").absolute())
        if not venv or subprocess.run([python, "-c", "import gguf, xllamacpp"], capture_output=True).returncode:
            raise Missing("give SLIPSTREAM_LLAMA_VENV or --llama-venv, an environment with xllamacpp and gguf")
        if is_gguf(setup.model) != (kind == "file"):
            raise Missing("it is for folders" if is_gguf(setup.model) else "it is for GGUF files")
        weights = setup.model
        if kind != "file":
            weights = setup.scratch / f"{kind}.gguf"
            convert = [python, str(WORKERS / "gguf_file.py"), str(setup.model), str(weights), kind]
            subprocess.run(convert, check=True, capture_output=True)
        port = free_port()
        numbers = (port, setup.threads, setup.most_concurrent, setup.context_tokens)
        command = [python, str(WORKERS / "llama_server.py"), str(weights), *map(str, numbers)]
        flags = said(python, "import xllamacpp; print(xllamacpp.get_system_info())")
        build = f"{versions(python, 'xllamacpp')}; {flags}"
        super().__init__(ProcessTree(f"llama.cpp-{kind}", command, {}, setup.scratch), port, build)
