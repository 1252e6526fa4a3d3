"""A client's own request id that does not reach the gateway."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "request_headers"
FIX = (
    "Pass `x-client-request-id` on as it is: by it a customer's log and `slipstream requests` name the same request. "
    "nginx passes it unless `proxy_pass_request_headers off;` or a `proxy_set_header` of that name says otherwise."
)


def judge(measured: Measured) -> Verdict:
    """By what the gateway says it got."""
    openings = [stream.opening for stream in measured.streams if stream.opening is not None]
    if not openings:
        return not_enough(CHECK, "no stream came")
    got = [opening.client_request_id for opening in openings]
    other = [name for name in got if name != measured.client_request_id]
    if other:
        what = "nothing" if other[0] is None else f"'{other[0]}'"
        told = f"'{measured.client_request_id}' was sent, and {what} arrived with {len(other)} of {len(got)} requests"
        return finding(CHECK, "request_id_lost", f"As x-client-request-id {told}.", FIX)
    return clear(CHECK, f"x-client-request-id arrived with {len(got)} of {len(got)} requests")
