"""What is asked: a whole deployment of ours with two embedded replicas, or two servers of SGLang's with nothing before
them."""

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
from benchmarks.processes import free_port
from contracts.desired_state import Model, Pool, Replica
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from infra.local.config import LocalConfig
from router.config import RouterConfig, SloClass
from speculative.config import SpeculationConfig
from tests.deployment import ROOT, Deployment, deployment

MODEL = "slipstream-code"
FOLDER = ROOT / "models" / MODEL
CONTEXT_TOKENS = 6_144
"""Of 4,000 to 8,000 tokens of file: the longer ones need a window."""
KV_BYTES = 256 * 1024 * 1024
"""Of each engine, as `slipstream up` starts it."""
QUEUED_S = 0.05
"""Waiting longer than this for a place is a wait."""
REPLICAS = 2
CLIENT_WINDOW = (10_800, 3_600)
"""Characters that an editor without our windows sends: 3 : 1, and few enough for the context; in proportion for
others."""
SGLANG_READY_S = 400.0
"""A guard: 40 to 75 s on two idle cores."""
SHIPPED_S = 3.0
"""The ledger gets what has ended every second or so."""
LOST_S = 30.0
PROMISE_S = 30.0
"""For the first token. What a GPU is promised to do, 200 ms, a CPU cannot: cold prompts would be refused."""
SHOWN = FillInTheMiddle(min_confidence=0.0)
"""What is measured is when text comes, whatever the model thinks of it."""
ENGINE_NICE = 5
"""As `slipstream up` starts its engines."""


class Row(msgspec.Struct, frozen=True):
    """A request as the ledger has it, and the trace. Of one that was ended before its first token, the prompt tokens
    are those that the engine had read by then."""

    client_request_id: str
    prompt_tokens: int
    cached_tokens: int
    finish: str
    closed_at: float
    """The engine had confirmed the end: Unix time in seconds."""
    superseded: bool = False
    """The gateway has ended it for a newer one."""
    queued_s: float = 0.0
    """It waited for a place at an engine."""
    completion_tokens: int = 0

    @property
    def read_whole(self) -> bool:
        """The engine had read all of the prompt: something was generated, or nobody ended it."""
        return bool(self.completion_tokens) or (self.finish == "complete" and not self.superseded)

    @property
    def reused(self) -> bool:
        """It was answered without an engine, from what another request had generated."""
        return self.finish == "complete" and not self.prompt_tokens and not self.superseded


class Watch:
    """Filled in when it is over."""

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
        """Of a user, who is a tenant of their own."""
        return Endpoint((self._platform.url,), self._keys[user], MODEL, self._window)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[Watch]:
        """What the engines do meanwhile; the watch has it at the end."""
        watch, began_s = Watch(), time.monotonic()
        before = await engine_load.read(self._engines, TOKEN)
        yield watch
        after = await engine_load.read(self._engines, TOKEN)
        watch.load = engine_load.load(before, after, time.monotonic() - began_s)

    async def rows(self, asked: Iterable[Asked]) -> dict[str, Row]:
        """What the ledger has of these, by the editors' ids; requests that were closed at once may have no row.

        Returns when all that were answered are there, and no other has come for `SHIPPED_S`.
        """
        sent = list(asked)
        answered = {one.id for one in sent if one.status == 200 and one.closed_at is None and not one.refusal}
        async with self._platform.database() as connection:
            found: dict[str, Row] = {}
            changed_s = time.monotonic()
            while not answered <= found.keys() or time.monotonic() < changed_s + SHIPPED_S:
                rows = await connection.fetch(ROWS, [one.id for one in sent])
                # by the last attempt, where there were several
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
    """What a deployment is made of: everything on, as `up` has it."""

    folder: Path
    """The model's."""
    model: Model
    speculation: SpeculationConfig
    """Of both engines."""
    policy: str
    """The router's."""
    client_window: tuple[int, int] | None = None
    """Characters in front of and behind the cursor that the editors send; None: the whole file."""
    kv_bytes: int = KV_BYTES
    """Of each engine, for keys and values."""

    @property
    def engine(self) -> dict[str, Any]:
        """Of `engines.embedded.config.EngineConfig`."""
        return {
            "model": str(self.folder),
            "name": MODEL,
            "context_tokens": self.model.context_tokens,
            "kv": {"budget_bytes": self.kv_bytes},
            "speculation": msgspec.to_builtins(self.speculation),
        }

    def environment(self, urls: Sequence[str]) -> dict[str, str]:
        """The deployment's settings. urls: of the engines."""
        pool = Pool("code", "embedded", tuple(Replica(f"code-{number}", url) for number, url in enumerate(urls)), 64)
        return {
            "SLIPSTREAM_MODELS": msgspec.json.encode([self.model]).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
            "SLIPSTREAM_ROUTER__SLOS": msgspec.json.encode([SloClass(Tier.AUTOCOMPLETE, 1 << 31, PROMISE_S)]).decode(),
            "SLIPSTREAM_ROUTER__POLICY": self.policy,
            # all users sit behind one address
            "SLIPSTREAM_GATEWAY__CONNECTIONS__MAX_CONNECTIONS_PER_ADDRESS": "0",
            "SLIPSTREAM_GATEWAY__QUEUE_DEADLINE_S": json.dumps({"autocomplete": PROMISE_S}),
        }


def everything_on(context_tokens: int = CONTEXT_TOKENS, kv_bytes: int = KV_BYTES) -> Setup:
    """Drafts as engines of the autocomplete tier have them that `up` starts."""
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
    before, behind = (each * setup.model.context_tokens // CONTEXT_TOKENS for each in CLIENT_WINDOW)
    return msgspec.structs.replace(
        setup, model=_model(setup, fim=msgspec.structs.replace(SHOWN, window=False)), client_window=(before, behind)
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
"""How each is switched off; the folder is there for copies."""


@contextlib.asynccontextmanager
async def slipstream(users: int, setup: Setup, without: str = "") -> AsyncIterator[Slipstream]:
    """A deployment, without one of `LEVERS`."""
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
    """The same weights, laid out as everybody else lays them out: prefix, suffix, middle, the whole prefix first."""
    shutil.copytree(FOLDER, folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["fim_typed_line"], settings["fim_min_confidence"]
    file.write_text(json.dumps({**settings, "fim_order": "psm"}))
    return folder


class SGLang:
    """Two servers, asked in turn."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(urls)

    def endpoint(self, user: int) -> Endpoint:
        """Every other user begins with the other one."""
        turned = user % len(self._urls)
        return Endpoint(self._urls[turned:] + self._urls[:turned], TOKEN, MODEL, CLIENT_WINDOW)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[Watch]:
        """Its steps are not told."""
        yield Watch()

    async def rows(self, asked: Iterable[Asked]) -> dict[str, Row]:
        """Of the answers that ended: SGLang tells the usage of no others."""
        return {
            one.id: Row(one.id, one.prompt_tokens, one.cached_tokens or 0, "complete", 0.0)
            for one in asked
            if one.prompt_tokens is not None
        }


@contextlib.asynccontextmanager
async def sglang(venv: str, serve: str) -> AsyncIterator[SGLang]:
    """`SERVE VENV MODEL_FOLDER PORT [flags]` runs a server in the foreground."""
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
