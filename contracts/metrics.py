"""Serves a process's metrics on a port of its own, without a token and by default for this machine only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app, start_http_server
from prometheus_client.registry import Collector

from contracts.errors import ConfigError

REQUEST_S = 10.0
"""Time within which a connection must send its request, because each connection holds a thread."""


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The address where one process serves its metrics. No token is required: every client that reaches the port can
    read them."""

    host: str = "127.0.0.1"
    """Address to listen on for /metrics. Use an address other than loopback only in a private network."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """TCP port. 0 turns /metrics off, except under `up`, which then chooses a port. If `up` starts several processes of
    a kind, the first one uses this port and each further one the next."""


@contextlib.contextmanager
def metrics_server(collector: Collector, config: MetricsConfig, setting: str) -> Iterator[None]:
    """While entered, serves the metrics of `collector` and of the process to GET requests, from threads.

    setting: the dotted name of `config`. Raises ConfigError if the port is not available.
    """
    if not config.port:
        yield
        return
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(config.port, config.host, registry)
    except OSError as error:
        raise ConfigError(
            f"{setting}.port: cannot listen on {config.host}:{config.port} ({error.strerror}); free the port or set "
            "another",
            param=f"{setting}.port",
        ) from None
    server.RequestHandlerClass.timeout = REQUEST_S  # type: ignore[attr-defined]
    # If a client accepts OpenMetrics, prometheus_client (0.26) writes `_` for the colon in SGLang's names unless UTF-8
    # is negotiated: names would depend on the version of the scraping Prometheus. The plain text format keeps them.
    negotiating = make_wsgi_app(registry)
    server.set_app(lambda environ, start: negotiating({**environ, "HTTP_ACCEPT": "text/plain"}, start))
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
