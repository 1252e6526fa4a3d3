"""TensorRT-LLM's prefill/decode pairs: the engines of both halves, and the front, which is all that the gateway knows.

The front does what the gateway does for SGLang: it calls a context server with `disaggregated_params`
(`context_only`), then a generation server with that server's response (`generation_only`). So the gateway sends it
plain requests. `tensorrt_llm/llmapi/disagg_utils.py` defines the keys.
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
    """Each engine of the front, as a pool of its own with a role that the desired state never sees. The front sends no
    key, so none of the pools requires one."""
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
    """The front's command and file. Raises ConfigError for another driver, for a URL without a port and for a repeated
    URL."""
    halves = launch.disaggregated
    assert halves is not None
    if pool.driver != DRIVER:
        raise ConfigError(
            f"{field}.disaggregated: only driver {DRIVER!r} has a front of its own, not {pool.driver!r}; SGLang's "
            'pairs are a pool with role = "prefill" and one with role = "decode"',
            param=f"{field}.disaggregated",
        )
    addresses = [_address(url, f"{field}.disaggregated") for url in (front.url, *halves.context, *halves.generation)]
    repeated = next((address for address in addresses if addresses.count(address) > 1), None)
    if repeated is not None:
        raise ConfigError(
            f"{field}.disaggregated: {repeated} is given twice; front and engines listen at addresses of their own",
            param=f"{field}.disaggregated",
        )
    hostname, _, port = addresses[0].rpartition(":")
    host = Reasoned(hostname, f"of {front.url}")
    if launch.host:
        host = Reasoned(launch.host, "as set")
    elif pool.api_key_required:
        host = Reasoned("127.0.0.1", BEHIND_KEY)
    path = f"{launch.folder.rstrip('/')}/{front.id}.disaggregated.yaml"
    context, generation = addresses[1 : 1 + len(halves.context)], addresses[1 + len(halves.context) :]
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
    """The URL's `host:port`."""
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
