"""Refuses request heads that are too large or ambiguous. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.errors import HeadersTooLarge, RequestError, SlipstreamError, TransferCodingUnsupported

HEADER_OVERHEAD_BYTES = 32
"""Bytes added for each header, as in HTTP/2 (RFC 7541, 4.1), because small headers cost memory, too."""
VERSIONS = ("1.1", "1.0")
GIVEN_ONCE = frozenset({b"host", b"authorization", b"x-api-key", b"transfer-encoding"})
"""Headers that may occur only once: of two, a proxy may use the first and the gateway the second."""


def refusal_of(
    version: str, url: bytes, headers: Sequence[tuple[bytes, bytes]], max_bytes: int
) -> SlipstreamError | None:
    """The refusal of this head; None if it is accepted. headers: with names in lower case."""
    size = len(url) + HEADER_OVERHEAD_BYTES * len(headers)
    seen: list[bytes] = []
    twice = b""
    coding = None
    for name, value in headers:
        size += len(name) + len(value)
        if name in GIVEN_ONCE:
            if name in seen:
                twice = name
            seen.append(name)
            if name == b"transfer-encoding":
                coding = value
    if size > max_bytes:
        return too_large(max_bytes)
    if version not in VERSIONS:
        return RequestError(f"HTTP/{version} is not supported; use HTTP/1.1.")
    if b"host" not in seen and version == "1.1":
        return RequestError("The header 'host' is missing; HTTP/1.1 requires it (RFC 9112, 3.2). Send it once.")
    if twice:
        return RequestError(f"The header '{twice.decode()}' is given {seen.count(twice)} times; send it once.")
    if coding is not None and coding.strip().lower() != b"chunked":
        return TransferCodingUnsupported(
            "The body's transfer encoding is not supported; send 'chunked' alone, or a content-length."
        )
    return None


def too_large(max_bytes: int) -> HeadersTooLarge:
    """The refusal of a head, or of trailers, beyond the bound."""
    return HeadersTooLarge(f"The request's URL and headers are larger than {max_bytes} bytes.")
