"""The servers of a replay: a whole deployment with two embedded replicas, or two SGLang servers with nothing in front
of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.engine_cpu_rivals.process import ProcessTree
from benchmarks.engine_process import TOKEN, engine
from benchmarks.keystroke_sessions import engine_load
from benchmarks.keystroke_sessions.editor import Asked, Endpoint
from benchmarks.keystroke_sessions.engine_load import EngineLoad
from contracts.desired_state import Model, Pool, Replica
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from infra.local.config import LocalConfig
from router.config import RouterConfig, SloClass
from speculative.config import SpeculationConfig
from tests.deployment import ROOT, Deployment, deployment, free_port

MODEL = "slipstream-code"
FOLDER = ROOT / "models" / MODEL
CONTEXT_TOKENS = 6_144
"""The model's context. Files have 4,000 to 8,000 tokens, so the longer ones need a window."""
KV_BYTES = 256 * 1024 * 1024
"""The KV cache of each engine, as `slipstream up` sets it."""
QUEUED_S = 0.05
"""A request that waits longer for a place counts as queued."""
REPLICAS = 2
CLIENT_WINDOW = (10_800, 3_600)
"""The characters before and after the cursor that an editor sends if the gateway cuts no window: 3 : 1, and few enough
for `CONTEXT_TOKENS`; in proportion for other contexts."""
SGLANG_READY_S = 400.0
"""The timeout of SGLang's start, which takes 40 to 75 s on two idle cores."""
SHIPPED_S = 3.0
"""The time without a new row after which the ledger counts as complete; it gets rows about every second."""
LOST_S = 30.0
PROMISE_S = 30.0
"""The promise for the first token. A CPU cannot keep the 200 ms of a GPU: cold prompts would be refused."""
SHOWN = FillInTheMiddle(min_confidence=0.0)
"""The benchmark measures when text arrives, so no completion is withheld for low confidence."""
ENGINE_NICE = 5
"""As `slipstream up` starts its engines."""


class Row(msgspec.Struct, frozen=True):
    """A request's row of the ledger and of the trace. If it ended before its first token, the prompt tokens are those
    that the engine had read by then."""

    client_request_id: str
    prompt_tokens: int
    cached_tokens: int
    finish: str
    closed_at: float
    """When the engine had confirmed the end: Unix time in seconds."""
    superseded: bool = False
    """Whether the gateway ended it for a newer one."""
    queued_s: float = 0.0
    """How long it waited for a place at an engine."""
    completion_tokens: int = 0

    @property
    def read_whole(self) -> bool:
        """Whether the engine read all of the prompt: it generated a token, or the request ended by itself."""
        return bool(self.completion_tokens) or (self.finish == "complete" and not self.superseded)

    @property
    def reused(self) -> bool:
        """Whether it was answered without an engine, from the output of another request."""
        return self.finish == "complete" and not self.prompt_tokens and not self.superseded


class Watch:
    """The engines' load during a block; set at its end, None if the engines do not report it."""

    def __init__(self) -> None:
        self.load: EngineLoad | None = None


class Slipstream:
    """Gateway, router and engines as processes of their own."""

    def __init__(
        self, platform: Deployment, keys: Sequence[str], window: tuple[int, int] | None, engines: Sequence[str]
    ) -> None:
        """engines: their URLs."""
        self._platform = platform
        self._engines = engines
        self._keys = keys
        self._window = window

    def endpoint(self, user: int) -> Endpoint:
        """The endpoint of a user, who is a tenant of their own."""
        return Endpoint((self._platform.url,), self._keys[user], MODEL, self._window)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[Watch]:
        """Measure the engines' load during the block; the watch has it afterwards."""
        watch, began_s = Watch(), time.monotonic()
        before = await engine_load.read(self._engines, TOKEN)
        yield watch
        after = await engine_load.read(self._engines, TOKEN)
        watch.load = engine_load.load(before, after, time.monotonic() - began_s)

    async def rows(self, asked: Iterable[Asked]) -> dict[str, Row]:
        """The ledger's rows of these requests, by the editors' ids; a request that was closed at once may have none.

        Returns when every answered request has its row and no row has arrived for `SHIPPED_S`.
        """
        sent = list(asked)
        answered = {one.id for one in sent if one.status == 200 and one.closed_at is None and not one.refusal}
        async with self._platform.database() as connection:
            found: dict[str, Row] = {}
            changed_s = time.monotonic()
            while not answered <= found.keys() or time.monotonic() < changed_s + SHIPPED_S:
                rows = await connection.fetch(ROWS, [one.id for one in sent])
                # the last attempt's row where there were several
                before, found = found, {each["client_request_id"]: Row(**dict(each)) for each in rows}
                if len(found) != len(before):
                    changed_s = time.monotonic()
                elif time.monotonic() > changed_s + LOST_S:
                    raise TimeoutError(f"{len(answered - found.keys())} answers are not in the ledger")
                await asyncio.sleep(0.2)  # another process's state
        return found


ROWS = """
    SELECT trace.client_request_id, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.finish,
           extract(epoch FROM usage.closed_at)::float8 AS closed_at,
           coalesce(trace.error_code = 'superseded', false) AS superseded,
           coalesce((trace.phases_ms ->> 'queue')::float8, 0) / 1000 AS queued_s
      FROM gateway.usage_events AS usage JOIN gateway.request_traces AS trace USING (request_id)
     WHERE trace.client_request_id = ANY($1::text[])
     ORDER BY usage.attempt
"""


class Setup(msgspec.Struct, frozen=True):
    """The parts of a deployment that the levers change."""

    folder: Path
    """The model's folder."""
    model: Model
    speculation: SpeculationConfig
    """The setting of both engines."""
    policy: str
    """The router's policy."""
    client_window: tuple[int, int] | None = None
    """The characters before and after the cursor that the editors send; None for the whole file."""
    kv_bytes: int = KV_BYTES
    """The KV cache of each engine."""

    @property
    def engine(self) -> dict[str, Any]:
        """The fields of `engines.embedded.config.EngineConfig`."""
        return {
            "model": str(self.folder),
            "name": MODEL,
            "context_tokens": self.model.context_tokens,
            "kv": {"budget_bytes": self.kv_bytes},
            "speculation": msgspec.to_builtins(self.speculation),
        }

    def environment(self, urls: Sequence[str]) -> dict[str, str]:
        """The deployment's settings as environment variables. urls: those of the engines."""
        pool = Pool("code", "embedded", tuple(Replica(f"code-{number}", url) for number, url in enumerate(urls)), 64)
        return {
            "SLIPSTREAM_MODELS": msgspec.json.encode([self.model]).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
            "SLIPSTREAM_ROUTER__SLOS": msgspec.json.encode([SloClass(Tier.AUTOCOMPLETE, 1 << 31, PROMISE_S)]).decode(),
            "SLIPSTREAM_ROUTER__POLICY": self.policy,
            # all users share one address
            "SLIPSTREAM_GATEWAY__CONNECTIONS__MAX_CONNECTIONS_PER_ADDRESS": "0",
            "SLIPSTREAM_GATEWAY__QUEUE_DEADLINE_S": json.dumps({"autocomplete": PROMISE_S}),
        }


def everything_on(context_tokens: int = CONTEXT_TOKENS, kv_bytes: int = KV_BYTES) -> Setup:
    """The setup with all levers on; engines draft as those of the autocomplete tier that `up` starts."""
    return Setup(
        FOLDER,
        Model(MODEL, Tier.AUTOCOMPLETE, "code", context_tokens, tokenizer=str(FOLDER), fim=SHOWN),
        SpeculationConfig(method=LocalConfig().code_speculation),
        RouterConfig().policy,
        kv_bytes=kv_bytes,
    )


def _without_layout(setup: Setup, scratch: Path) -> Setup:
    folder = plain_layout(scratch / MODEL)
    return msgspec.structs.replace(setup, folder=folder, model=_model(setup, tokenizer=str(folder)))


def _without_grid(setup: Setup, scratch: Path) -> Setup:
    before, after = (each * setup.model.context_tokens // CONTEXT_TOKENS for each in CLIENT_WINDOW)
    return msgspec.structs.replace(
        setup, model=_model(setup, fim=msgspec.structs.replace(SHOWN, window=False)), client_window=(before, after)
    )


def _without_affinity(setup: Setup, scratch: Path) -> Setup:
    return msgspec.structs.replace(setup, policy="round_robin")


def _without_supersession(setup: Setup, scratch: Path) -> Setup:
    return msgspec.structs.replace(setup, model=_model(setup, fim=msgspec.structs.replace(SHOWN, supersede=False)))


def _without_reuse(setup: Setup, scratch: Path) -> Setup:
    return msgspec.structs.replace(setup, model=_model(setup, fim=msgspec.structs.replace(SHOWN, reuse=False)))


def _without_speculation(setup: Setup, scratch: Path) -> Setup:
    return msgspec.structs.replace(setup, speculation=SpeculationConfig(method="off"))


def _model(setup: Setup, **switches: Any) -> Model:
    """Raises TypeError for a switch that models do not have."""
    return msgspec.structs.replace(setup.model, **switches)


LEVERS: Mapping[str, Callable[[Setup, Path], Setup]] = {
    "layout": _without_layout,
    "grid": _without_grid,
    "affinity": _without_affinity,
    "supersession": _without_supersession,
    "reuse": _without_reuse,
    "speculation": _without_speculation,
}
"""By lever, the function that switches it off; the folder is scratch space for copies."""


@contextlib.asynccontextmanager
async def slipstream(users: int, setup: Setup, without: str = "") -> AsyncIterator[Slipstream]:
    """Run a deployment. without: the lever of `LEVERS` to switch off; empty for none."""
    async with contextlib.AsyncExitStack() as stack:
        if without:
            setup = LEVERS[without](setup, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        loop = asyncio.get_running_loop()
        engines = [engine(setup.engine, ENGINE_NICE) for _ in range(REPLICAS)]
        urls = await asyncio.gather(*(loop.run_in_executor(None, one.__enter__) for one in engines))
        for one in engines:
            stack.push(one)
        platform = await stack.enter_async_context(
            deployment(environment=setup.environment(urls), token=TOKEN, on_disk=True)
        )
        keys = [await platform.make_key("--organization", f"user-{number}") for number in range(users)]
        yield Slipstream(platform, keys, setup.client_window, urls)


def plain_layout(folder: Path) -> Path:
    """Copy the model to `folder` with the common layout: prefix, suffix, middle, with the whole prefix first."""
    shutil.copytree(FOLDER, folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["fim_typed_line"], settings["fim_min_confidence"]
    file.write_text(json.dumps({**settings, "fim_order": "psm"}))
    return folder


class SGLang:
    """Two servers, used in turn."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(urls)

    def endpoint(self, user: int) -> Endpoint:
        """The endpoint of a user; every other user starts with the second server."""
        first = user % len(self._urls)
        return Endpoint(self._urls[first:] + self._urls[:first], TOKEN, MODEL, CLIENT_WINDOW)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[Watch]:
        """Yield an empty watch: SGLang does not report its steps."""
        yield Watch()

    async def rows(self, asked: Iterable[Asked]) -> dict[str, Row]:
        """The rows of the answers that ended: SGLang reports no other usage."""
        return {
            one.id: Row(one.id, one.prompt_tokens, one.cached_tokens or 0, "complete", 0.0)
            for one in asked
            if one.prompt_tokens is not None
        }


@contextlib.asynccontextmanager
async def sglang(venv: str, serve: str) -> AsyncIterator[SGLang]:
    """Run two servers. serve: a script; `SERVE VENV MODEL_FOLDER PORT [flags]` runs a server in the foreground."""
    ports = [free_port() for _ in range(REPLICAS)]
    flags = ["--served-model-name", MODEL, "--api-key", TOKEN, "--completion-template", "qwen_coder"]
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        trees = []
        for port in ports:
            command = ["bash", serve, venv, str(FOLDER), str(port), *flags]
            environment = {"OMP_NUM_THREADS": "1", "MAX_TOTAL_TOKENS": str(CONTEXT_TOKENS * 16)}
            trees.append(ProcessTree(f"sglang-{port}", command, environment, Path(scratch)))
            stack.callback(trees[-1].stop)
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for url, tree in zip(urls, trees, strict=True):
            await _ready(url, tree)
        yield SGLang(urls)


async def _ready(url: str, tree: ProcessTree) -> None:
    async with aiohttp.ClientSession() as client, asyncio.timeout(SGLANG_READY_S):
        while True:
            tree.require_running()
            with contextlib.suppress(aiohttp.ClientError):
                async with client.get(f"{url}/health") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.5)  # another process's state
