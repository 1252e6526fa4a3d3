"""Detects that a client's own request id does not reach the gateway."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "request_headers"
FIX = (
    "Pass `x-client-request-id` on as it is: by it a customer's log and `slipstream requests` name the same request. "
    "nginx passes it unless `proxy_pass_request_headers off;` or a `proxy_set_header` of that name says otherwise."
)


def judge(measured: Measured) -> Verdict:
    """Judge by the id that the gateway received."""
    openings = [stream.opening for stream in measured.streams if stream.opening is not None]
    if not openings:
        return not_enough(CHECK, "no stream came")
    ids = [opening.client_request_id for opening in openings]
    other = [name for name in ids if name != measured.client_request_id]
    if other:
        seen = "nothing" if other[0] is None else f"'{other[0]}'"
        fault = f"'{measured.client_request_id}' was sent, and {seen} arrived with {len(other)} of {len(ids)} requests"
        return finding(CHECK, "request_id_lost", f"As x-client-request-id {fault}.", FIX)
    return clear(CHECK, f"x-client-request-id arrived with {len(ids)} of {len(ids)} requests")
