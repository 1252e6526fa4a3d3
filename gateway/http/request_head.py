"""Which request heads are refused, whatever they ask for: too large, or of two meanings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.errors import HeadersTooLarge, RequestError, SlipstreamError, TransferCodingUnsupported

HEADER_OVERHEAD_BYTES = 32
"""Each header counts so much more, as in HTTP/2 (RFC 7541, 4.1): small ones cost memory too."""
VERSIONS = ("1.1", "1.0")
GIVEN_ONCE = (b"host", b"authorization", b"x-api-key")
"""Of two, what stands before us may have read the other one."""
_LOOKED_AT = frozenset({*GIVEN_ONCE, b"transfer-encoding"})


def refusal_of(
    version: str, url: bytes, headers: Sequence[tuple[bytes, bytes]], max_bytes: int
) -> SlipstreamError | None:
    """Why this head is refused; None: it is not. headers: names in lower case."""
    size = len(url) + HEADER_OVERHEAD_BYTES * len(headers)
    looked_at = []
    for header in headers:
        size += len(header[0]) + len(header[1])
        if header[0] in _LOOKED_AT:
            looked_at.append(header)
    if size > max_bytes:
        return too_large(max_bytes)
    if version not in VERSIONS:
        return RequestError(f"HTTP/{version} is not spoken here; use HTTP/1.1.")
    names = [name for name, _ in looked_at]
    if names == [b"host"]:
        return None
    if b"host" not in names and version == "1.1":
        return RequestError("The header 'host' is missing; a request of HTTP/1.1 has one (RFC 9112, 3.2).")
    for name in GIVEN_ONCE:
        if names.count(name) > 1:
            return RequestError(f"The header '{name.decode()}' is given {names.count(name)} times; send it once.")
    codings = [value.strip().lower() for name, value in looked_at if name == b"transfer-encoding"]
    if codings not in ([], [b"chunked"]):
        return TransferCodingUnsupported(
            "The body's transfer encoding is not taken here; send it as 'chunked' alone, or with its length."
        )
    return None


def too_large(max_bytes: int) -> HeadersTooLarge:
    """The refusal of a head, or of trailers, beyond the bound."""
    return HeadersTooLarge(f"The request's URL and headers are larger than {max_bytes} bytes.")
