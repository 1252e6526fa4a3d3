#!/usr/bin/env python3
"""An executable that stands for `llama-server`: it takes its options and its key, loads, answers as it does, or refuses
its model. It starts a process of its own, as larger engines do, and writes its id next to the model."""

import argparse
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
for option in ("--model", "--alias", "--host", "--port", "--parallel", "--ctx-size"):
    parser.add_argument(option, required=True)
parser.add_argument("--metrics", action="store_true", required=True)
asked = parser.parse_args()
model = Path(asked.model)
if not model.read_bytes().startswith(b"GGUF"):
    print("0.00.124.697 E llama_model_load: error loading model: invalid magic characters", file=sys.stderr)
    print("0.00.124.732 E srv    load_model: failed to load model", file=sys.stderr)
    print("0.00.125.151 E srv          init: exiting due to model loading error", file=sys.stderr)
    sys.exit(1)
helper = subprocess.Popen(["sleep", "600"])
model.with_suffix(".pids").write_text(f"{os.getpid()} {helper.pid}")
print("0.00.000.001 I srv    load_model: loading model", flush=True)
loading_file = model.with_suffix(".loading")
"""It loads as long as this exists."""


class Handler(BaseHTTPRequestHandler):
    """Its answers while it loads, and after."""

    def do_GET(self) -> None:
        loading = loading_file.exists()
        if self.path == "/health":
            self._answer(503, {"error": {"code": 503, "message": "Loading model"}}) if loading else self._answer(
                200, {"status": "ok"}
            )
        elif self.headers["authorization"] != f"Bearer {os.environ['LLAMA_API_KEY']}":
            self._answer(401, {"error": {"code": 401, "message": "Invalid API Key"}})
        else:
            self._answer(200, {"data": [{"id": asked.alias, "ctx": asked.ctx_size}]})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


ThreadingHTTPServer((asked.host, int(asked.port)), Handler).serve_forever()
