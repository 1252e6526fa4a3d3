"""What the router told, as the admin API tells it."""

from __future__ import annotations

import msgspec
from google.protobuf.json_format import MessageToDict

from contracts.proto import control_pb2 as pb
from control.router_view.placement import placement_of


def test_what_is_not_finite_is_null_in_the_answer() -> None:
    """protobuf's JSON has words for it."""
    decision = pb.Decision(chosen="a", predicted_s=float("inf"), regret_s=float("nan"), prompt_tokens=100)
    decision.candidates.add(replica_id="a", predicted_s=float("inf"), cost=float("inf"), uncached_tokens=40)
    told = MessageToDict(decision, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    assert told["predicted_s"] == "Infinity"
    answered = msgspec.json.decode(msgspec.json.encode(placement_of(told)))
    assert (answered["predicted_ms"], answered["regret_ms"]) == (None, None)
    [candidate] = answered["candidates"]
    assert (candidate["chosen"], candidate["predicted_ms"], candidate["cost"]) == (True, None, None)
