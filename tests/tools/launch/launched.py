"""Renders replicas for tests, of the card's two pools unless told otherwise."""

from __future__ import annotations

from typing import Any

from contracts.desired_state import Pool, Replica
from tools.launch.config import LaunchConfig, LaunchSpeculation
from tools.launch.render import Served, render
from tools.launch.spec import LaunchSpec, Reasoned

KEY_FILE = "/etc/slipstream/pool.key"
HEAD = LaunchSpeculation(draft_model="/models/head")


def launch_of(**given: Any) -> LaunchConfig:
    """An 8B model on H100s, in folders that are not on this machine."""
    return LaunchConfig(**{"model": "/models/coder", "shape": "llama-8b", "gpu": "h100", **given})


def pool_of(driver: str, **given: Any) -> Pool:
    """A pool with one replica."""
    port = 8_998 if given.get("role") == "prefill" else 0
    replica = Replica(id="gpu-0", url="http://10.0.0.5:30000", speculation=True, bootstrap_port=port)
    return Pool(**{"name": "gpu", "driver": driver, "replicas": (replica,), "api_key_file": KEY_FILE, **given})


def rendered(
    pool: Pool,
    launch: LaunchConfig,
    speculation: bool = False,
    context_tokens: int = 8_192,
    cards: int = 1,
    max_running: int | None = 32,
) -> LaunchSpec:
    """The pool's first replica."""
    served = Served(
        model_name="coder",
        context_tokens=Reasoned(context_tokens, "of the test"),
        tensor_parallel=Reasoned(cards, "of the test"),
        max_running=None if max_running is None else Reasoned(max_running, "of the test"),
        token_file="/srv/slipstream/token",
    )
    return render(pool, pool.replicas[0], launch, served, speculation)


def options_of(spec: LaunchSpec) -> dict[str, tuple[str, ...]]:
    """The values of every option."""
    return {each.name: each.values for each in spec.arguments}
