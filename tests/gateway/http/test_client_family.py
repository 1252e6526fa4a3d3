"""Clients' families, by headers that were recorded (Tabby's agent, Continue's library, curl, OpenAI's and our own) or
are those of the library that a client's source uses (llama.vscode: axios; Zed); and never a word of a header itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.client_family import EDITORS, OTHER
from gateway.http.client_family import CLIENTS, NAMED_BY, client_family

KEY_TWICE = {b"authorization": b"Bearer k", b"x-api-key": b"k"}


def by_agent(sent: bytes, endpoint: str = "") -> str:
    return client_family({b"user-agent": sent}, endpoint)


@pytest.mark.parametrize(
    ("sent", "family"),
    [
        (b"Node.js/v20.1.0 tabby-agent/1.8.0 Visual-Studio-Code/1.96.2 TabbyML.vscode-tabby/1.12.0", "tabby-agent"),
        (b"curl/8.5.0", "curl"),
        (b"AsyncOpenAI/Python 1.109.1", "openai-python"),
        (b"OpenAI/JS 5.23.1", "openai-node"),
        (b"slipstream-lsp/0.1 python-httpx/0.28", "slipstream-lsp"),
        (b"Zed/0.211.6", "zed"),
        (b"Mozilla/5.0", OTHER),
        (b"", OTHER),
    ],
)
def test_families(sent: bytes, family: str) -> None:
    assert by_agent(sent) == family


def test_nothing_said_is_other() -> None:
    assert client_family({}) == OTHER


def test_tabbys_endpoint_is_its_agents_unless_the_header_says_otherwise() -> None:
    assert by_agent(b"node", "tabby") == client_family({}, "tabby") == "tabby-agent"
    assert by_agent(b"curl/8.5.0", "tabby") == "curl"
    assert by_agent(b"node", "completion") == OTHER


def test_axios_at_infill_is_llama_vscode() -> None:
    assert by_agent(b"axios/1.7.9", "infill") == "llama.vscode"
    assert by_agent(b"axios/1.7.9", "completion") == by_agent(b"node", "infill") == OTHER


def test_continue_sends_its_key_twice_where_mistrals_clients_send_it_once() -> None:
    assert client_family({**KEY_TWICE, b"user-agent": b"node-fetch"}, "fim") == "continue"
    assert by_agent(b"node-fetch", "fim") == OTHER
    assert client_family({**KEY_TWICE, b"user-agent": b"OpenAI/JS 5.23.2"}, "completion") == "openai-node"


def test_what_is_configured_goes_before_what_is_recognized() -> None:
    told = {NAMED_BY: b" Continue", b"user-agent": b"OpenAI/JS 5.23.2"}
    assert client_family(told, "completion") == "continue"
    assert client_family({NAMED_BY: b"editor"}) in EDITORS
    assert client_family({**KEY_TWICE, NAMED_BY: b"other"}, "fim") == OTHER
    assert client_family({NAMED_BY: b"notepad", b"user-agent": b"curl/8"}) == "curl"


@given(st.binary(max_size=2_000), st.binary(max_size=100))
def test_nothing_but_a_family_is_kept(sent: bytes, named: bytes) -> None:
    assert client_family({b"user-agent": sent, NAMED_BY: named}) in CLIENTS
