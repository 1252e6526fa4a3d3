"""An engine's response in every framing that HTTP/1.1 has, for tests of who reads it."""

from __future__ import annotations

from engines.http.engine_stream import EngineStream

EVENTS = b'data: {"text":"a"}\n\ndata: {"text":"\xc3\xa9"}\n\ndata: [DONE]\n\n'
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (EVENTS[:20], EVENTS[20:21], EVENTS[21:]))
    + b"0\r\n\r\n"
)
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(EVENTS), EVENTS)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + EVENTS


async def read_all(stream: EngineStream) -> bytes:
    body = b""
    while piece := await stream.read():
        body += piece
    return body
