"""Detects a compressed event stream: each event waits for a compressor, and small events get larger."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "compression"
FIX = (
    "Do not compress text/event-stream: nginx `gzip off;` in the location, or take the type out of `gzip_types` (`*` "
    "has it). Cloudflare and others leave a stream alone that says `cache-control: no-transform`."
)


def judge(measured: Measured) -> Verdict:
    """Judge by the responses' encodings; all requests had `accept-encoding: gzip, deflate`."""
    streams = measured.streams
    if not streams:
        return not_enough(CHECK, "no stream came")
    encodings = [stream.headers.get("content-encoding", "identity") for stream in streams]
    compressed = [encoding for encoding in encodings if encoding != "identity"]
    if compressed:
        evidence = f"{len(compressed)} of {len(streams)} streams came as content-encoding: {compressed[0]}"
        return finding(CHECK, "compressed", f"{evidence}; the gateway sends them as they are.", FIX)
    return clear(CHECK, f"{len(streams)} streams came as they were sent, though gzip was offered")
