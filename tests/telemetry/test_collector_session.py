"""A collector whose answer has no end costs the process no memory and no more than one read's time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import requests

from telemetry.collector_session import MAX_BYTES, CollectorSession

HEAD = b"HTTP/1.1 %s\r\nContent-Length: 100000000000\r\n\r\n"


@contextlib.contextmanager
def answering(*pieces: bytes) -> Iterator[str]:
    """A server that answers one request with these pieces, and then nothing until the client has gone."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.recv(65_536)
                for piece in pieces:
                    client.sendall(piece)
                client.settimeout(30)
                while client.recv(65_536):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)
        assert not thread.is_alive(), "the connection was left open"


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request"])
def test_of_an_endless_answer_the_beginning_is_read(status: bytes) -> None:
    with answering(HEAD % status + b"why", b"x" * 1_000_000) as url:
        answer = CollectorSession().request("POST", url, data=b"spans", timeout=20)
        assert answer.status_code == int(status[:3])
        assert 0 < len(answer.content) <= MAX_BYTES
        assert answer.text.startswith("why")


def test_an_answer_whose_body_does_not_come_is_given_up() -> None:
    with answering(HEAD % b"200 OK") as url, pytest.raises(requests.RequestException):
        CollectorSession().request("POST", url, data=b"spans", timeout=0.2)


def test_one_that_is_cut_off_is_a_failure() -> None:
    with answering() as url, pytest.raises(requests.RequestException):
        CollectorSession().request("POST", url, data=b"spans", timeout=0.2)
