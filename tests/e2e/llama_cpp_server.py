"""llama.cpp's own HTTP server with the options of a server for vectors, or for scores with the pooling type RANK.

python llama_cpp_server.py GGUF PORT POOLING: runs in an environment with the wheel xllamacpp, until it is killed.
"""

from __future__ import annotations

import importlib
import signal
import sys
from typing import Any

xllamacpp: Any = importlib.import_module("xllamacpp")

params = xllamacpp.CommonParams()
params.model.path, params.port, params.hostnames = sys.argv[1], int(sys.argv[2]), ["127.0.0.1"]
params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{sys.argv[3]}")
params.model_alias, params.embedding, params.endpoint_metrics = {"tiny"}, True, True
params.warmup, params.verbosity = False, 1
params.n_parallel, params.n_ctx, params.n_batch, params.n_ubatch, params.kv_unified = 2, 512, 256, 256, True
for cpu in (params.cpuparams, params.cpuparams_batch):
    cpu.n_threads = 1
server = xllamacpp.Server(params)
signal.pause()
