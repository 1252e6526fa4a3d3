"""A URL that leads nowhere is answered with the one that was meant, or with what there is."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

import pytest

from contracts.errors import NotFound
from control.routes import ADMINISTERED
from gateway.app import SERVED
from gateway.http.unknown_url import APART, MAX_COMPARED, NOT_SERVED, unknown_url

CHAT = "Did you mean POST /v1/chat/completions?"
COMPLETIONS = "Did you mean POST /v1/completions?"
MODELS = "Did you mean GET /v1/models?"
MESSAGES = "Did you mean POST /v1/messages?"
ANTHROPIC_BASE = "The base URL of Anthropic's clients is this address without /v1."
BASE = "Set the client's base URL to this address followed by /v1."
LIST = (
    "Served: POST /v1/chat/completions, POST /v1/completions, POST /v1/fim/completions, POST /infill, "
    "POST /v1/messages, POST /v1/messages/count_tokens, POST /tokenize, POST /v1/embeddings, POST /v1/rerank, "
    "POST /v1/score, POST /v1/responses, GET /v1/models."
)
ADMIN = "The admin API is /admin/v1; GET /admin/v1/openapi.json describes it."


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/admin/v1/organization", "/organizations"),
        ("/admin/v1/organization/0193/project", "/organizations/0193/projects"),
        ("/admin/organizations", "/organizations"),
        ("/admin/v1/price/7", "/prices/7"),
        ("/admin/v1/organizations/0193/webhook", "/organizations/0193/webhooks"),
        ("/admin/v1/nothing/like/it", ""),
        ("/admin/v1/organizations/0193/nothing/more", ""),
        ("/admin", ""),
        ("/admin/organizations/0193", "/organizations/0193"),
        ("/v1/admin/v1/nothing", ""),
    ],
)
def test_a_mistyped_path_of_the_admin_api_is_put_right(path: str, meant: str) -> None:
    message = unknown_url("GET", path, SERVED, ADMINISTERED).message
    said = f"Did you mean /admin/v1{meant}? GET /admin/v1/openapi.json describes it." if meant else ADMIN
    assert message == f"Unknown request URL: GET {path}. {said}"


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/chat/completions", f"{CHAT} {BASE}"),
        ("/v1/v1/chat/completions", f"{CHAT} {BASE}"),
        ("//v1/chat/completions", f"{CHAT} {BASE}"),
        ("/api/v1/chat/completions", f"{CHAT} {BASE}"),
        ("/v1/chat/completions/chat/completions", f"{CHAT} {BASE}"),
        ("/openai/deployments/gpt/chat/completions", f"{CHAT} {BASE}"),
        ("/v1/completions/completions", f"{COMPLETIONS} {BASE}"),
        ("/models", f"{MODELS} {BASE}"),
        ("/v1/chat/completion", CHAT),
        ("/v1/chat/completions_", CHAT),
        ("/chat/completion", CHAT),
        ("/v1/completion", COMPLETIONS),
        ("/v1/model", MODELS),
        ("/v1/infill", "Did you mean POST /infill? Its clients' base URL is this address without /v1."),
        ("/infil", "Did you mean POST /infill?"),
        ("/fim/completions", f"Did you mean POST /v1/fim/completions? {BASE}"),
        ("/heath", "Did you mean GET /health?"),
        ("/v1", f"/v1 is a base URL. {LIST}"),
        ("/v1/images", f"Images are not served here. {LIST}"),
        ("/embeddings", f"Did you mean POST /v1/embeddings? {BASE}"),
        ("/v1/v1/messages", f"{MESSAGES} {ANTHROPIC_BASE}"),
        ("/messages", f"{MESSAGES} {BASE}"),
        ("/api/generate", f"Ollama's own API is not served here. {LIST}"),
        ("/v1/something", LIST),
        ("/something", "GET / lists the APIs at this address."),
        ("/admin/organizations", APART),
        ("/v1/admin/v1/organizations", APART),
        ("/console/", APART),
        ("/v1/batches", APART),
        ("/v1/files/file-1/content", APART),
        ("/v1/organization/costs", APART),
    ],
)
def test_the_usual_mistakes_have_their_mend(path: str, advice: str) -> None:
    error = unknown_url("POST", path, SERVED)
    assert isinstance(error, NotFound)
    assert error.message == f"Unknown request URL: POST {path}. {advice}"


def test_a_long_path_is_not_repeated_whole() -> None:
    message = unknown_url("GET", "/x" * 50_000, SERVED).message
    assert len(message) < 2 * MAX_COMPARED


def test_the_work_for_a_path_of_nonsense_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    compare = difflib.get_close_matches

    def counted(word: str, words: Collection[str], *rest: Any) -> list[str]:
        nonlocal compared
        compared += len(words)
        return compare(word, words, *rest)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    most = 0
    for steps in range(1, MAX_COMPARED // 2):
        compared = 0
        unknown_url("GET", "/admin/v1" + "/price" * steps, SERVED, ADMINISTERED)
        most = max(most, compared)

    assert 0 < most <= len(ADMINISTERED)


def test_nothing_that_is_served_is_named_as_not_served() -> None:
    assert not [path for path in SERVED if path.removeprefix("/v1").split("/")[1] in NOT_SERVED]


def test_a_scrape_of_the_api_port_is_answered_with_where_the_metrics_are() -> None:
    message = unknown_url("GET", "/metrics", SERVED, ADMINISTERED).message
    assert "at a port of its own, at /metrics: `slipstream status` lists them" in message
