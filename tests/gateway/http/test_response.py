"""Nothing follows the end of an answer."""

from __future__ import annotations

from typing import Any

from contracts.errors import InternalError
from gateway.http.response import ResponseWriter
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat


class Ended:
    """A connection whose answer has ended."""

    started = ended = True

    def __init__(self) -> None:
        self.written: list[Any] = []

    def end(self, data: bytes) -> None:
        self.written.append(data)

    def start(self, status: int, headers: Any) -> None:
        self.written.append(status)


def test_a_failure_behind_the_end_is_noted_and_not_written() -> None:
    connection = Ended()
    response = ResponseWriter(connection, ChatFormat(RequestConfig()), "req_1")  # type: ignore[arg-type]

    response.fail(InternalError("late"))

    assert connection.written == []
    assert response.error_code == "internal_error"
