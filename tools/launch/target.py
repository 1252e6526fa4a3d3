"""The input of a dialect: one replica, its pool, the model that it serves, and the numbers of its launch."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import msgspec

from contracts.desired_state import Pool, Replica
from contracts.errors import ConfigError
from tools.launch.adapter_memory import adapters_in_batch
from tools.launch.config import LaunchConfig
from tools.launch.sizing import Drafts, Sizing
from tools.launch.spec import Reasoned


class Target(msgspec.Struct, frozen=True):
    """One replica, with drafts or without."""

    pool: Pool
    replica: Replica
    launch: LaunchConfig
    model_name: str
    """The name that it serves the model under."""
    context_tokens: Reasoned[int]
    """Limit for prompt and answer together."""
    gpu_sizing: Sizing | None
    """None if the launch names no GPU, so that nothing is derived."""
    token_file: str
    """The file with the deployment's token, for pools without a key of their own."""

    @property
    def sizing(self) -> Sizing:
        """The numbers of a launch that names a GPU."""
        assert self.gpu_sizing is not None, "nothing is derived without a GPU"
        return self.gpu_sizing

    @property
    def drafts(self) -> Drafts | None:
        """How the replica drafts; None if it does not."""
        return None if self.gpu_sizing is None else self.gpu_sizing.drafts

    @property
    def field(self) -> str:
        """The name of its launch settings, for messages."""
        return f"pools.{self.pool.name}.launch"

    @property
    def variant(self) -> str:
        """The name of its files, which differs with and without drafts, so that one folder can hold both."""
        if self.launch.speculation is None:
            return self.replica.id
        return f"{self.replica.id}.speculation-{'on' if self.drafts else 'off'}"

    def path(self, ending: str) -> str:
        """Path of a file of this replica on its machine."""
        return f"{self.launch.folder.rstrip('/')}/{self.variant}.{ending}"

    @property
    def adapters_in_batch(self) -> int:
        """Adapters that the replica computes at once."""
        return adapters_in_batch(self.pool.max_adapters)

    @property
    def host(self) -> str:
        """The address to listen on: the URL's if it is an IP address, else every address, as a name may mean any."""
        if self.launch.host:
            return self.launch.host
        name = urlsplit(self.replica.url).hostname or ""
        try:
            return str(ipaddress.ip_address(name))
        except ValueError:
            return "0.0.0.0"  # noqa: S104  the name's address is known only where it is resolved

    @property
    def port(self) -> int:
        """The port to listen on. Raises ConfigError if the URL is that of a proxy in front of the engine."""
        url = urlsplit(self.replica.url)
        if self.launch.port:
            return self.launch.port
        if url.scheme == "https" or url.path.strip("/") or url.port is None:
            raise ConfigError(
                f"{self.field}.port: {self.replica.url} is not the address of the engine itself: it has no port, or "
                "a proxy ends TLS or serves a path; give the engine's port",
                param=f"{self.field}.port",
            )
        return url.port


def zmq_port(endpoint: str, field: str) -> int:
    """The port of an endpoint such as `tcp://host:5557`. Raises ConfigError."""
    url = urlsplit(endpoint)
    if url.scheme != "tcp" or url.port is None:
        raise ConfigError(f"{field}: {endpoint!r} is not a ZeroMQ endpoint such as tcp://10.0.0.5:5557", param=field)
    return url.port
