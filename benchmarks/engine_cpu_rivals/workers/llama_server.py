"""llama.cpp's own HTTP server, from the xllamacpp wheel. Runs in its environment, until it is killed.

python llama_server.py GGUF PORT THREADS SLOTS CONTEXT_TOKENS
"""

from __future__ import annotations

import importlib
import signal
import sys
from typing import Any

xllamacpp: Any = importlib.import_module("xllamacpp")


def main() -> None:
    path, port, threads, slots, context_tokens = sys.argv[1], *map(int, sys.argv[2:])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {"bench"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * context_tokens
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
