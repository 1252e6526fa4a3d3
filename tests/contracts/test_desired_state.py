"""A fleet that contradicts itself is refused by its field."""

from __future__ import annotations

import pytest

from contracts.desired_state import DesiredState, Pool, Replica
from contracts.errors import ConfigError

EVENTS = "tcp://10.1.0.10:5557"


def state(*replicas: Replica) -> DesiredState:
    """Each in a pool of its own."""
    return DesiredState(1, (), tuple(Pool(f"p{at}", "sglang", (one,)) for at, one in enumerate(replicas)))


def test_two_engines_cannot_tell_their_kv_events_in_one_place() -> None:
    one, other = (Replica(f"r{at}", f"http://10.1.0.{at}:30000", kv_events=EVENTS) for at in range(2))
    told = (
        r"pools\.p1\.replicas\.r1\.kv_events: tcp://10\.1\.0\.10:5557 is already the endpoint of the KV events of "
        r"engine http://10\.1\.0\.0:30000"
    )
    with pytest.raises(ConfigError, match=told):
        state(one, other).check()


def test_one_engine_in_two_pools_and_engines_that_tell_none_may() -> None:
    same = (Replica(f"r{at}", "http://10.1.0.1:30000", kv_events=EVENTS) for at in range(2))
    silent = (Replica(f"s{at}", f"http://10.1.0.{at}:30000") for at in range(2))
    state(*same, *silent).check()
