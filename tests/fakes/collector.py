"""A collector that speaks OTLP over HTTP, as any does, and keeps what it is sent. It can also be broken or mute."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.waiting import GUARD_S


class Exported:
    """A span as it arrived."""

    def __init__(self, span: Span, service: str) -> None:
        self.name = span.name
        self.service = service
        self.trace_id, self.span_id, self.parent_id = (
            value.hex() for value in (span.trace_id, span.span_id, span.parent_span_id)
        )
        self.kind = Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower()
        self.start_ns, self.end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes: dict[str, Any] = {each.key: _plain(each.value) for each in span.attributes}
        self.failed = span.status.code == 2
        self.state = span.trace_state
        self.parent_is_remote = bool(span.flags & 0x200)

    def __repr__(self) -> str:
        return f"{self.service}:{self.name}"


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return getattr(value, kind)


def _service(resource: Resource) -> str:
    return next(each.value.string_value for each in resource.attributes if each.key == "service.name")


class Collector:
    """Use `collector`."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.mute = False
        """Takes requests and answers none until it ends."""
        self.bodies: list[bytes] = []
        """As they came, decompressed."""
        self.headers: list[dict[str, str]] = []
        self.ended = threading.Event()
        self._changed = threading.Condition()

    @property
    def spans(self) -> list[Exported]:
        """All spans so far."""
        return [
            Exported(span, _service(told.resource))
            for body in list(self.bodies)
            for told in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in told.scope_spans
            for span in scope.spans
        ]  # fmt: skip

    def wait_for(self, *names: str, timeout_s: float = GUARD_S) -> list[Exported]:
        """All spans once there is one of each name."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: set(names) <= {span.name for span in self.spans}, timeout_s)
        assert arrived, f"there are only {self.spans}"
        return self.spans

    def wait_until(self, is_it: Callable[[Exported], bool], timeout_s: float = GUARD_S) -> Exported:
        """The first span for which this holds, once there is one."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(is_it, self.spans)), timeout_s)
        return next(filter(is_it, self.spans))

    def wait_for_requests(self, count: int, timeout_s: float = GUARD_S) -> None:
        """Return once it was asked so often, whatever it answered."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.headers) >= count, timeout_s)

    def took(self, headers: dict[str, str], body: bytes) -> int:
        """The status to answer with."""
        with self._changed:
            self.headers.append(headers)
            if self.status == 200:
                self.bodies.append(body)
            self._changed.notify_all()
        if self.mute:
            self.ended.wait()
        return self.status


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """A running one."""
    state = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            assert self.headers["content-type"] == "application/x-protobuf"
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            status = state.took({name.lower(): value for name, value in self.headers.items()}, body)
            with contextlib.suppress(OSError):  # who stopped waiting has left
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
