"""Sends one line of a batch to the gateway, once, and returns its result."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec

from contracts.dated_request_id import mint
from control.batches.claims import Result
from control.batches.line import BatchOutput, Line
from control.deferred import gateway_client

ID_PREFIX = "batch_req_"


class Failed(Exception):
    """The line failed. result: the result to store, unless the line is retried."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


async def ask(session: aiohttp.ClientSession, url: str, token: str, number: int, line: Line) -> Result:
    """Send the line. Raises Failed, and the errors of `control.deferred.gateway_client.ask` except NoAnswer."""
    try:
        answer = await gateway_client.ask(session, url + line.url, token, bytes(line.body))
    except gateway_client.NoAnswer:
        content = output(line.custom_id, None, {"code": "no_answer", "message": gateway_client.LOST})
        raise Failed(Result(number, False, content)) from None
    response = {"status_code": answer.status, "request_id": answer.request_id, "body": msgspec.json.decode(answer.body)}
    result = Result(number, answer.status == 200, output(line.custom_id, response, None), answer.closed)
    if answer.status in gateway_client.FAILED:
        raise Failed(result)
    return result


def output(custom_id: str, response: dict[str, Any] | None, error: dict[str, str] | None) -> bytes:
    """A line of the output or error file."""
    return msgspec.json.encode(BatchOutput(ID_PREFIX + mint().removeprefix("req_"), custom_id, response, error))
