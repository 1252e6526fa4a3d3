"""llama.cpp's dialect: `llama-server`, which serves one GGUF file and fits itself to the machine it starts on."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.desired_state import Pool
from contracts.errors import ConfigError
from tools.launch.config import LaunchConfig
from tools.launch.key import read_key, source
from tools.launch.matrix import further_options
from tools.launch.spec import Argument, LaunchSpec, Variable
from tools.launch.target import Target

SLOTS = 4
"""Default number of requests that run at once; memory for keys and values is reserved for each."""


def render(target: Target) -> LaunchSpec:
    """The command of one replica. Raises ConfigError."""
    arguments = tuple(_arguments(target))
    _require_extra(target, arguments)
    return LaunchSpec(
        replica=target.replica.id,
        pool=target.pool.name,
        engine="llama.cpp",
        speculation=False,
        program=("llama-server",),
        arguments=(*arguments, *(Argument(word) for word in target.launch.extra_arguments)),
        environment=tuple(_environment(target)),
    )


def slots_of(pool: Pool, launch: LaunchConfig) -> int:
    """Requests that a replica runs at once."""
    return launch.max_running or pool.max_concurrency or SLOTS


def _arguments(target: Target) -> Iterator[Argument]:
    launch, slots = target.launch, slots_of(target.pool, target.launch)
    # a value that is no path on this machine could be a file or a name on the Hub: the file's extension decides
    is_file = launch.model.endswith(".gguf")
    yield Argument("--model" if is_file else "--hf-repo", (launch.model,), "" if is_file else "a name on the Hub")
    yield Argument("--alias", (target.model_name,), "the name in requests")
    yield Argument("--host", (target.host,), f"of {target.replica.url}")
    yield Argument("--port", (str(target.port),))
    yield Argument("--parallel", (str(slots),), "requests at once")
    context = target.context_tokens
    yield Argument("--ctx-size", (str(context.value * slots),), f"{context.value:,} for each: {context.why}")
    yield Argument("--metrics", (), "its queue, for the router")


def _environment(target: Target) -> Iterator[Variable]:
    if read := read_key(target.pool, target.token_file):
        why = f"the API key, from {source(target.pool, target.token_file)}"
        yield Variable("LLAMA_API_KEY", f"$({read})", why, secret=True)


def _require_extra(target: Target, arguments: tuple[Argument, ...]) -> None:
    """Raises ConfigError for extra arguments that contradict rendered ones; llama.cpp's other options are not known."""
    field, written = f"{target.field}.extra_arguments", {each.name for each in arguments}
    for name in further_options(target.launch):
        if name == "--api-key":
            raise ConfigError(
                f"{field}: a key never appears on a command line; give the pool's api_key_file or api_key_env",
                param=field,
            )
        if name in written:
            raise ConfigError(f"{field}: {name} is already set by another setting; change that one", param=field)
