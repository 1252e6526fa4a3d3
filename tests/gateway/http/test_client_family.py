"""Clients' families by the User-Agents they really send, and never a word of the header itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.client_family import CLIENTS, OTHER, client_family


@pytest.mark.parametrize(
    ("sent", "family"),
    [
        (b"Node.js/v20.1.0 tabby-agent/1.8.0 Visual-Studio-Code/1.96.2 TabbyML.vscode-tabby/1.12.0", "tabby-agent"),
        (b"curl/8.5.0", "curl"),
        (b"AsyncOpenAI/Python 1.109.1", "openai-python"),
        (b"OpenAI/JS 5.23.1", "openai-node"),
        (b"slipstream-lsp/0.1 python-httpx/0.28", "slipstream-lsp"),
        (b"Mozilla/5.0", OTHER),
        (b"", OTHER),
    ],
)
def test_families(sent: bytes, family: str) -> None:
    assert client_family(sent) == family


def test_tabbys_endpoint_is_its_agents_unless_the_header_says_otherwise() -> None:
    assert client_family(b"node", "tabby") == client_family(b"", "tabby") == "tabby-agent"
    assert client_family(b"curl/8.5.0", "tabby") == "curl"
    assert client_family(b"node", "completion") == OTHER


@given(st.binary(max_size=2_000))
def test_nothing_but_a_family_is_kept(sent: bytes) -> None:
    assert client_family(sent) in CLIENTS
