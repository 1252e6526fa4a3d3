"""TensorRT-LLM's prefill/decode pairs: the engines of both halves, and the front that the gateway knows alone.

The front does what our gateway does for SGLang: it asks a context server with `disaggregated_params`
(`context_only`), and a generation server with what that answered (`generation_only`). So the gateway sends it plain
requests. Keys: `tensorrt_llm/llmapi/disagg_utils.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from contracts.desired_state import Pool, Replica, Role
from contracts.errors import ConfigError
from tools.launch.config import LaunchConfig, LaunchDisaggregated
from tools.launch.dialects.tensorrt_llm import BEHIND_KEY, NO_KEY, STABLE
from tools.launch.spec import Argument, LaunchFile, LaunchSpec, Reasoned
from tools.launch.yaml_text import Entry, text_of

DRIVER = "tensorrt_llm"
HANDSHAKE = (
    "the front calls both halves and forwards their handshake: the gateway knows the front alone, and sends no "
    "disaggregated_params"
)


def workers(pool: Pool, front: Replica, halves: LaunchDisaggregated) -> Iterator[Pool]:
    """Each engine behind the front, as a pool of its own with a role that the desired state never sees. The front sends
    no key, so that none of them can be behind what checks one."""
    roles: tuple[tuple[Role, str, tuple[str, ...]], ...] = (
        ("prefill", "context", halves.context),
        ("decode", "generation", halves.generation),
    )
    for role, name, urls in roles:
        for number, url in enumerate(urls):
            engine = Replica(id=f"{front.id}-{name}-{number}", url=url, speculation=front.speculation)
            yield msgspec.structs.replace(
                pool, role=role, replicas=(engine,), api_key_required=False, api_key_file="", api_key_env=""
            )


def front_of(pool: Pool, front: Replica, launch: LaunchConfig, field: str) -> LaunchSpec:
    """The front's command and file. Raises ConfigError for another driver, and for URLs that name no port or are given
    twice."""
    halves = launch.disaggregated
    assert halves is not None
    if pool.driver != DRIVER:
        raise ConfigError(
            f"{field}.disaggregated: only driver {DRIVER!r} has a front of its own, not {pool.driver!r}; SGLang's "
            'pairs are a pool with role = "prefill" and one with role = "decode"',
            param=f"{field}.disaggregated",
        )
    named = [_address(url, f"{field}.disaggregated") for url in (front.url, *halves.context, *halves.generation)]
    twice = next((one for one in named if named.count(one) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"{field}.disaggregated: {twice} is given twice; front and engines listen at addresses of their own",
            param=f"{field}.disaggregated",
        )
    hostname, _, port = named[0].rpartition(":")
    host = Reasoned(hostname, f"of {front.url}")
    if launch.host:
        host = Reasoned(launch.host, "as set")
    elif pool.api_key_required:
        host = Reasoned("127.0.0.1", BEHIND_KEY)
    path = f"{launch.folder.rstrip('/')}/{front.id}.disaggregated.yaml"
    context, generation = named[1 : 1 + len(halves.context)], named[1 + len(halves.context) :]
    entries = (
        Entry("hostname", host.value, host.why),
        Entry("port", launch.port or int(port)),
        Entry("context_servers", _servers(context), "compute prompts"),
        Entry("generation_servers", _servers(generation), "write answers"),
    )
    return LaunchSpec(
        replica=front.id,
        pool=pool.name,
        engine=f"TensorRT-LLM {launch.version or STABLE} front",
        speculation=front.speculation,
        program=("trtllm-serve", "disaggregated"),
        arguments=(Argument("-c", (path,)),),
        files=(LaunchFile(path, text_of(entries)),),
        notes=(HANDSHAKE,) if pool.api_key_required else (HANDSHAKE, NO_KEY),
    )


def _servers(addresses: list[str]) -> tuple[Entry, ...]:
    return Entry("num_instances", len(addresses)), Entry("urls", addresses)


def _address(url: str, field: str) -> str:
    """`host:port` of it."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or port is None or parts.path.strip("/"):
        raise ConfigError(
            f"{field}: {url!r} is not the address of an engine; write it as http://10.0.0.5:8000", param=field
        )
    return f"{parts.hostname}:{port}"
