"""Requests to engines over sockets: reused, refused, timed out, aborted, over TLS."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import errno
import os
import resource
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from contracts.errors import ConfigError, ConnectionsExhausted, EngineFailed, EngineTimeout, ServiceError
from engines.drivers.base import EngineRequest
from engines.http.engine_connections import EngineConnections, Opening
from engines.http.keys import OneKey
from engines.http.origin import Origin
from tests.engines.responses import CHUNKED, EVENTS, SIZED, read_all
from tests.waiting import GUARD_S

GET = EngineRequest("GET", "/health")
POST = EngineRequest("POST", "/v1/completions", b'{"a":1}')


class Server:
    """A raw server that counts its connections and answers with whatever the test's handler writes."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.handle: Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = answer_sized

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.handle(self, reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def request(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ") for line in head.strip().split(b"\r\n")[1:])
        self.requests.append(head + await reader.readexactly(int(fields.get(b"content-length", 0))))


async def answer_sized(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await server.request(reader)
        writer.write(SIZED)


async def stay_silent(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read one request and answer nothing."""
    await server.request(reader)
    server.asked.set()
    await reader.read()
    server.gone.set()


async def begin_only(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with the beginning of a stream that never ends."""
    await server.request(reader)
    writer.write(CHUNKED[:60])
    assert await reader.read() == b""
    server.gone.set()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    raw = Server()
    listening = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield raw


@pytest.fixture
async def engines() -> AsyncIterator[EngineConnections]:
    connections = EngineConnections(OneKey("secret"))
    yield connections
    await connections.close()


async def test_a_connection_is_used_again_and_sends_only_what_is_meant(
    server: Server, engines: EngineConnections
) -> None:
    for _ in range(3):
        stream = await engines.open(server.url, POST)
        assert (stream.status, await read_all(stream)) == (200, EVENTS)
        stream.close()
    assert server.connections == 1
    lines = server.requests[0].split(b"\r\n")
    assert lines[0] == b"POST /v1/completions HTTP/1.1"
    names = {line.split(b":")[0] for line in lines[1:5]}
    assert names == {b"Authorization", b"Content-Length", b"Content-Type", b"Host"}
    assert b"Authorization: Bearer secret" in lines
    assert lines[5:] == [b"", b'{"a":1}']


async def test_a_path_in_the_replicas_url_stays(server: Server, engines: EngineConnections) -> None:
    assert await engines.fetch(server.url + "/base/", GET, 10) == (200, EVENTS)
    assert server.requests[0].startswith(b"GET /base/health HTTP/1.1\r\n")


async def test_two_answers_at_once_need_two_connections(server: Server, engines: EngineConnections) -> None:
    streams = await asyncio.gather(*(engines.open(server.url, GET) for _ in range(2)))
    assert server.connections == 2
    for stream in streams:
        assert await read_all(stream) == EVENTS


async def test_nagle_is_off(server: Server, engines: EngineConnections) -> None:
    await engines.fetch(server.url, GET, 10)
    (connection,) = engines._pools[server.url].connections
    assert connection._transport is not None
    sock = connection._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_a_connection_that_died_idle_is_replaced(server: Server, engines: EngineConnections) -> None:
    async def answer_once(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(SIZED)
        if server.connections == 1:
            # take the second request and die without a byte, as an engine does whose keep-alive ran out meanwhile
            await server.request(reader)

    server.handle = answer_once
    for _ in range(2):
        assert await engines.fetch(server.url, POST, 10) == (200, EVENTS)
    assert server.connections == 2
    assert len(server.requests) == 3


async def test_a_fresh_connection_that_dies_is_not_tried_again(server: Server, engines: EngineConnections) -> None:
    async def die(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)

    server.handle = die
    with pytest.raises(EngineFailed, match="closed the connection before its response was complete"):
        await engines.open(server.url, POST)
    assert server.connections == 1


async def test_an_answer_that_began_is_not_tried_again(server: Server, engines: EngineConnections) -> None:
    async def die_late(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(SIZED)
        await server.request(reader)
        writer.write(b"HTTP/1.1 200")

    server.handle = die_late
    await engines.fetch(server.url, POST, 10)
    with pytest.raises(EngineFailed):
        await engines.open(server.url, POST)
    assert server.connections == 1


async def test_an_engine_notices_that_the_reader_left(server: Server, engines: EngineConnections) -> None:
    server.handle = begin_only
    stream = await engines.open(server.url, POST)
    await stream.read()
    stream.close()
    await asyncio.wait_for(server.gone.wait(), GUARD_S)


async def test_cancelling_before_the_answer_closes_the_connection(server: Server, engines: EngineConnections) -> None:
    server.handle = stay_silent
    opening = asyncio.ensure_future(engines.open(server.url, POST))
    await asyncio.wait_for(server.asked.wait(), GUARD_S)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await asyncio.wait_for(server.gone.wait(), GUARD_S)


async def test_silence_is_a_timeout_and_closes_the_connection(server: Server, engines: EngineConnections) -> None:
    server.handle = stay_silent
    with pytest.raises(EngineTimeout, match=r"The engine did not answer within 0\.05 s"):
        await engines.open(server.url, POST, response_timeout_s=0.05)
    await asyncio.wait_for(server.gone.wait(), GUARD_S)


async def test_fetch_limits_size(server: Server, engines: EngineConnections) -> None:
    with pytest.raises(EngineFailed, match="more than 10 bytes"):
        await engines.fetch(server.url, GET, 10, max_bytes=10)


async def test_fetch_limits_time(server: Server, engines: EngineConnections) -> None:
    async def trickle(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(SIZED[:-1])
        await reader.read()

    server.handle = trickle
    with pytest.raises(EngineTimeout):
        await engines.fetch(server.url, POST, 0.05)


async def test_a_closed_port_is_an_engine_failure(engines: EngineConnections) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]  # bound, so that no other process listens there
        with pytest.raises(EngineFailed, match="The engine cannot be reached"):
            await engines.open(f"http://127.0.0.1:{port}", GET)


async def test_an_engine_that_does_not_accept_is_an_engine_failure(engines: EngineConnections) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        fillers = []
        try:
            for _ in range(8):  # a full backlog: further SYNs are dropped
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(listening.getsockname())
                fillers.append(filler)
            with pytest.raises(EngineFailed, match=r"did not accept a connection within 0.1 s"):
                await engines.open(f"http://127.0.0.1:{listening.getsockname()[1]}", GET, 0.1)
        finally:
            for filler in fillers:
                filler.close()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Certificate and key of a server called localhost."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


async def test_https_checks_the_certificate(certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    raw = Server()
    listening = await asyncio.start_server(raw.serve, "localhost", 0, ssl=context, family=socket.AF_INET)
    url = f"https://localhost:{listening.sockets[0].getsockname()[1]}"
    trusting = EngineConnections(OneKey("secret"), ssl.create_default_context(cafile=certificate[0]))
    wary = EngineConnections(OneKey("secret"))
    try:
        assert await trusting.fetch(url, POST, 30) == (200, EVENTS)
        with pytest.raises(EngineFailed, match="The engine cannot be reached"):
            await wary.fetch(url, POST, 30)
        assert len(raw.requests) == 1
    finally:
        await trusting.close()
        await wary.close()
        listening.close()


async def test_close_cuts_running_streams(server: Server) -> None:
    server.handle = begin_only
    engines = EngineConnections(OneKey("secret"))
    stream = await engines.open(server.url, POST)
    await engines.close()
    with pytest.raises(EngineFailed):
        await read_all(stream)


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "x:80", "http://h:99999", "http://h/?a", "http://a b", "http://u@h"]
)
def test_a_bad_replica_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError, match="replica url"):
        Origin.parse(url)


def test_urls_are_read(engines: EngineConnections) -> None:
    assert Origin.parse("https://Engine/x/") == Origin(True, "engine", 443, "/x")
    assert Origin.parse("http://[::1]:8000").place == "[::1]:8000"


def test_a_token_that_could_smuggle_a_header_is_refused() -> None:
    with pytest.raises(ConfigError, match="token"):
        EngineConnections(OneKey("a\r\nx: y"))


def _use_up_descriptors(stack: contextlib.ExitStack) -> None:
    """Until the end of `stack` this process can open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    with contextlib.suppress(OSError):
        while True:
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:1"])
def test_having_no_descriptors_left_is_no_fault_of_the_engine(
    url: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def ask() -> None:
        connections = EngineConnections(OneKey(""))
        with contextlib.ExitStack() as stack:
            _use_up_descriptors(stack)
            with pytest.raises(ConnectionsExhausted) as error:
                await connections.open(url, GET, connect_timeout_s=20)
        assert error.value.retry_after_s is not None
        assert not isinstance(error.value, EngineFailed | EngineTimeout)
        with pytest.raises(EngineFailed):
            await connections.open(url, GET, connect_timeout_s=20)
        await connections.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(ask())


async def test_authorities_that_could_not_be_read_for_want_of_descriptors_are_read_later(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    listening = await asyncio.start_server(Server().serve, "localhost", 0, ssl=context, family=socket.AF_INET)
    url = f"https://localhost:{listening.sockets[0].getsockname()[1]}"
    connections = EngineConnections(OneKey(""))
    with contextlib.ExitStack() as stack:
        _use_up_descriptors(stack)
        with pytest.raises(ConnectionsExhausted):
            await connections.open(url, GET)
    assert await connections.fetch(url, GET, 30) == (200, EVENTS)
    await connections.close()
    listening.close()


class FailingLoop(asyncio.SelectorEventLoop):
    """Resolving a name, or connecting to its address, ends in an error."""

    def __init__(self, resolving: OSError | None = None, connecting: OSError | None = None) -> None:
        super().__init__()
        self.resolving, self.connecting = resolving, connecting

    async def getaddrinfo(self, *arguments: Any, **options: Any) -> Any:
        if self.resolving is not None:
            raise self.resolving
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        assert self.connecting is not None
        raise self.connecting


SHORTAGE_ERRNOS = (
    errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC, errno.EBUSY,
)  # fmt: skip
NO_ANSWER = (socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_NONAME)


def _open_with(loop: FailingLoop, url: str = "http://engine:1", *, descriptors: bool = True) -> ServiceError:
    async def ask() -> ServiceError:
        connections = EngineConnections(OneKey(""))
        with contextlib.ExitStack() as stack:
            if not descriptors:
                _use_up_descriptors(stack)
            with pytest.raises((EngineFailed, ConnectionsExhausted)) as error:
                await connections.open(url, GET, connect_timeout_s=20)
        await connections.close()
        return error.value

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(ask())


@pytest.mark.parametrize("number", SHORTAGE_ERRNOS, ids=errno.errorcode.get)
def test_a_shortage_here_is_no_fault_of_the_engine_wherever_it_is_met(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert isinstance(_open_with(FailingLoop(resolving=error)), ConnectionsExhausted)
    assert isinstance(_open_with(FailingLoop(connecting=error)), ConnectionsExhausted)


@pytest.mark.parametrize("number", NO_ANSWER)
def test_a_resolver_that_does_not_say_why_has_failed_for_want_of_descriptors_if_there_are_none(number: int) -> None:
    error = socket.gaierror(number, "no answer")
    assert isinstance(_open_with(FailingLoop(resolving=error), descriptors=False), ConnectionsExhausted)
    assert isinstance(_open_with(FailingLoop(resolving=error)), EngineFailed)


def test_a_resolver_without_memory_is_no_fault_of_the_engine() -> None:
    error = socket.gaierror(socket.EAI_MEMORY, "Memory allocation failure")
    assert isinstance(_open_with(FailingLoop(resolving=error)), ConnectionsExhausted)


def test_no_local_port_left_is_no_fault_of_the_engine_but_an_address_nobody_here_can_reach_is() -> None:
    error = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for url in ("http://127.0.0.1:1", "http://engine:1"):
        assert isinstance(_open_with(FailingLoop(connecting=error), url), ConnectionsExhausted)
    # an address of a link without the link's name, which no machine can connect to
    assert isinstance(_open_with(FailingLoop(connecting=error), "http://[fe80::1]:1"), EngineFailed)


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_any_other_failure_to_connect_is_the_engines(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert isinstance(_open_with(FailingLoop(connecting=error)), EngineFailed)


def test_no_message_about_an_engine_says_where_it_is() -> None:
    """Messages reach clients and their traces; where it was stands in `detail`. Every place that makes such an error:
    what is put into its message must be one of these, and a name must be that of a constant text."""
    harmless = {"timeout_s", "max_bytes", "reason", "status", "name"}
    counts = {"MAX_BYTES", "expected", "len(read.data)", "len(scores)", "self._pairs"}
    texts = {
        file: file.read_text() for package in ("engines", "gateway", "router") for file in Path(package).rglob("*.py")
    }
    makers = ("EngineFailed(", "EngineTimeout(", "decode_engine_json(")
    trees = {file: ast.parse(text) for file, text in texts.items() if any(maker in text for maker in makers)}
    found = 0
    for file, node, message in _messages(trees):
        found += 1
        if isinstance(message, ast.Name):
            assert _is_constant_text(message.id, texts.values()), f"{file}:{node.lineno}: not to be seen through"
            continue
        assert isinstance(message, ast.Constant | ast.JoinedStr), f"{file}:{node.lineno}: not to be seen through"
        put_in = [part.value for part in ast.walk(message) if isinstance(part, ast.FormattedValue)]
        assert {ast.unparse(value) for value in put_in} <= harmless | counts, f"{file}:{node.lineno}"
    assert found > 15


def _messages(trees: Mapping[Path, ast.Module]) -> Iterator[tuple[Path, ast.Call, ast.expr]]:
    """Of every error made, and of every call of `decode_engine_json`, which makes its of what it is given."""
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "decode_engine_json":
                yield file, node, node.args[2]
            elif node.func.id in ("EngineFailed", "EngineTimeout") and ast.unparse(node.args[0]) != "self.no_counters":
                if file.name == "engine_json.py":
                    assert ast.unparse(node.args[0]) == "failure"
                elif file.parts[0] != "router":
                    yield file, node, node.args[0]


def _is_constant_text(name: str, sources: Iterable[str]) -> bool:
    """Whether modules give the name to a text, and none of them to anything else."""
    given = [
        node.value
        for source in sources
        if f"{name} = " in source
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name
    ]
    return bool(given) and all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in given)


async def test_where_an_engine_is_stands_in_the_log_line_only(server: Server) -> None:
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    place = f"127.0.0.1:{closed.getsockname()[1]}"
    connections = EngineConnections(OneKey(""))

    async def never(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    server.handle = never
    for url in (f"http://{place}", server.url):
        with pytest.raises((EngineFailed, EngineTimeout)) as error:
            await connections.fetch(url, GET, 0.2)
        assert "127.0.0.1" not in error.value.message
        assert url.removeprefix("http://") in str(error.value)
    closed.close()
    await connections.close()


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("http://engine:8000", ""),
        ("http://engine:8000/v1", ""),
        ("http://engine:8000/v1/", ""),
        ("https://host/openai/v1", "/openai"),
        ("https://host/openai", "/openai"),
        ("https://host/v1/openai", "/v1/openai"),
        ("https://host/dev1", "/dev1"),
    ],
)
def test_the_base_url_of_an_sdk_names_the_same_engine(url: str, prefix: str) -> None:
    assert Origin.parse(url).prefix == prefix


async def test_a_retry_that_was_cancelled_while_it_connected_can_be_made_again() -> None:
    connecting = asyncio.Event()

    class Stream:
        def __init__(self, fails: bool) -> None:
            self._fails = fails

        async def responded(self, _timeout_s: float) -> None:
            if self._fails:
                raise EngineFailed("The connection had ended.")

    class Pool:
        origin = SimpleNamespace(place="engine")
        connects = 0

        def take(self) -> Any:
            return SimpleNamespace(got_bytes=False, send=lambda *_: Stream(fails=True))

        async def connect(self, _timeout_s: float) -> Any:
            self.connects += 1
            if self.connects == 1:
                connecting.set()
                await asyncio.Event().wait()
            return SimpleNamespace(got_bytes=True, send=lambda *_: Stream(fails=False))

    opening = Opening(cast("Any", Pool()), b"", 1.0, "req_1", "")
    first = asyncio.create_task(opening.response(1.0))
    await connecting.wait()
    first.cancel()
    await asyncio.wait([first])
    assert opening.sent
    assert not opening.in_flight, "a client that leaves now has nothing to stop, and must not send the request again"
    assert not cast("Any", await opening.response(1.0))._fails
    assert opening.in_flight
