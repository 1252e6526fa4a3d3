"""One question to a running router, for callers without an event loop: commands, tests."""

from __future__ import annotations

from contracts.errors import RouterUnavailable
from contracts.proto import router_pb2 as pb
from router.protocol import wire
from router.protocol.address import Address
from router.protocol.framing import FrameReader, framed

TIMEOUT_S = 5.0


def inquire(address: str, token: str, question: pb.GatewayMessage) -> pb.RouterMessage:
    """The router's answer to a `describe` or `explain`. Raises RouterUnavailable, ConfigError (the address)."""
    place = Address.parse(address, "router")
    frames = FrameReader(wire.MAX_MESSAGE_BYTES)
    try:
        with place.blocking(TIMEOUT_S) as line:
            line.sendall(framed(wire.opening(token)) + framed(question))
            while data := line.recv(1 << 16):
                for payload in frames.feed(data):
                    answer = pb.RouterMessage.FromString(payload)
                    if answer.HasField("closing"):
                        raise RouterUnavailable(f"The router at {address} refused: {answer.closing.reason}")
                    return answer
    except OSError as error:
        raise RouterUnavailable(f"The router at {address} does not answer: {error}") from None
    raise RouterUnavailable(f"The router at {address} closed the connection without an answer.")
