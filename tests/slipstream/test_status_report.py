"""`slipstream status` says first whether all is well, and fits a terminal."""

from __future__ import annotations

from infra.local.child import ChildStatus, State
from slipstream.replicas import ReplicaStatus
from slipstream.status_report import text_of

URL = "http://127.0.0.1:8000"
REASON = "no answer to GET /health within 2 s: " + "connection refused by the machine, " * 6


def process(name: str, state: State = State.READY) -> ChildStatus:
    return ChildStatus(name=name, state=state, pid=123_456, restarts=0, uptime_s=86_400.0, url=URL)


def replica(name: str, reason: str = "") -> ReplicaStatus:
    word = "unhealthy" if reason else "healthy"
    state = f"{word}: {reason}" if reason else word
    return ReplicaStatus(name, "chat", "http://127.0.0.1:31000", state, not reason, True, word, reason)


def test_a_deployment_that_is_well_says_so_with_its_addresses() -> None:
    metrics = {"gateway-1": "127.0.0.1:34567"}
    told = text_of(URL, f"{URL}/console/", [process("gateway-1"), process("router")], [replica("chat-1")], metrics)
    assert told.splitlines()[:3] == [
        "All is well: 2 processes ready, 1 engine usable",
        "API      http://127.0.0.1:8000/v1",
        "console  http://127.0.0.1:8000/console/",
    ]
    [gateway] = [line for line in told.splitlines() if line.startswith("gateway-1")]
    assert gateway.endswith("http://127.0.0.1:8000  127.0.0.1:34567")


def test_what_is_wrong_stands_first_and_its_reason_on_lines_of_its_own() -> None:
    processes = [process("engine-autocomplete-1", State.WAITING), process("gateway-1")]
    told = text_of(URL, None, processes, [replica("chat-1"), replica("chat-2", REASON)], {})
    lines = told.splitlines()
    assert lines[0].startswith("Needs attention: 1 of 2 processes is not ready (engine-autocomplete-1); 1 of 2 engines")
    assert "chat-2  chat  unhealthy  http://127.0.0.1:31000" in lines
    assert lines[-1].startswith("  ")
    assert " ".join(REASON.split()) in " ".join(told.split())
    assert max(map(len, lines)) <= 100


def test_a_router_that_does_not_answer_is_named() -> None:
    assert text_of(URL, None, [process("gateway-1")], None, {}).startswith(
        "Needs attention: the state of the engines is unknown, because the router does not answer"
    )


def test_a_drained_engine_is_no_fault() -> None:
    drained = ReplicaStatus("chat-2", "chat", URL, "drained", False, True, "drained", "")
    told = text_of(URL, None, [process("gateway-1")], [replica("chat-1"), drained], {})
    assert told.startswith("All is well: 1 process ready, 1 engine usable, chat-2 drained\n")


def test_a_gateway_that_refuses_the_fleet_is_the_first_line() -> None:
    refusal = "gateway-1 stays at version 9 of the fleet: the environment variable KEY is not set"
    said = text_of("", None, (), [replica("chat-1")], {}, [refusal])
    assert " ".join(said.split()).startswith(f"Needs attention: {refusal}")
