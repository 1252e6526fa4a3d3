"""One identity of a session from the headers of any harness, or from the body."""

from __future__ import annotations

import pytest

from gateway.serving.request import Arrival
from gateway.wire.session import MAX_CHARACTERS, Session, session_name, session_of
from tests.gateway.serving.harness import CHAT, body, harness

CLAUDE = {b"x-claude-code-session-id": b"0197-claude"}
SUBAGENT = {**CLAUDE, b"x-claude-code-agent-id": b"agent-2", b"x-claude-code-parent-agent-id": b"agent-1"}
CODEX = {b"session-id": b"01a2-codex", b"thread-id": b"01a2-codex"}
OPENCODE = {b"x-session-affinity": b"ses_child", b"x-parent-session-id": b"ses_parent"}


@pytest.mark.parametrize(
    ("headers", "in_body", "expected"),
    [
        ({}, "", None),
        ({}, "cache-key-1", Session("cache-key-1")),
        (CLAUDE, "cache-key-1", Session("0197-claude")),
        (SUBAGENT, "", Session("0197-claude", "agent-2", "agent-1")),
        (CODEX, "", Session("01a2-codex")),
        ({**CODEX, b"thread-id": b"01a2-child"}, "", Session("01a2-codex", "01a2-child")),
        ({b"session_id": b"01a2-codex"}, "", Session("01a2-codex")),
        (OPENCODE, "", Session("ses_child", None, "ses_parent")),
        ({b"x-session-id": b"ses_1", **OPENCODE}, "", Session("ses_1", None, "ses_parent")),
        ({b"x-dynamo-session-id": b"d", b"x-dynamo-parent-session-id": b"p"}, "", Session("d", None, "p")),
        ({b"x-slipstream-session": b"mine", **SUBAGENT, **CODEX}, "", Session("mine")),
        ({b"x-slipstream-session": b"", **CODEX}, "", Session("01a2-codex")),
        ({b"session-id": b"  "}, "cache-key-1", Session("cache-key-1")),
        ({b"session-id": b"a\x1b[2Jb\xe9"}, "", Session("a\\x1b[2Jbé")),
    ],
)
def test_the_first_name_of_a_session_counts(
    headers: dict[bytes, bytes], in_body: str, expected: Session | None
) -> None:
    assert session_of(headers, in_body) == expected


def test_a_long_name_is_cut_and_two_of_one_beginning_stay_two() -> None:
    one, other = (session_name("x" * 5_000 + end) for end in "12")
    assert len(one) == len(other) == MAX_CHARACTERS
    assert one != other
    assert session_name(one) == one, "the recorded name finds itself"
    assert len(session_name("\u202e" * MAX_CHARACTERS)) == MAX_CHARACTERS
    fitting = "y" * MAX_CHARACTERS
    assert session_name(fitting) == fitting


async def test_a_header_names_the_session_before_the_body_which_still_chooses_the_engine() -> None:
    async with harness() as platform:
        asked = body(prompt_cache_key="cache-key-1")
        request = await platform.request(asked=asked)
        assert request.session == Session("cache-key-1")
        request.headers = CLAUDE
        assert request.session == Session("0197-claude")
        assert request.prepared.session == "cache-key-1"
    refused = Arrival(CHAT, CODEX)
    assert refused.session == Session("01a2-codex")
