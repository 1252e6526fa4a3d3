"""Serves the page at the gateway's root address: the product and links, without models or customers."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from litestar import MediaType, Request, Response, get
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

TITLE = "Slipstream"
LINES = (
    "This address serves language models through OpenAI's and Anthropic's APIs.",
    "Base URL for clients: this address and /v1, with an API key from its operator.",
)
LINKS = (
    ("/openapi.json", "the API reference"),
    ("/readyz", "the readiness of this gateway"),
)
CONTROL_LINKS = (
    ("/console", "the console for administrators"),
    ("/admin/v1/openapi.json", "the admin API, with its own keys"),
)
"""Links of the control plane, which may be at another address."""


def front_page(also_serves: Callable[[str], bool]) -> HTTPRouteHandler:
    """Create the route of GET /: HTML for browsers, else plain text. also_serves: whether a path is served here."""
    links = [*(link for link in CONTROL_LINKS if also_serves(link[0])), *LINKS]
    text = "\n".join((TITLE, "", *LINES, "", *(f"{path:<24}{label}" for path, label in links), ""))
    html = "".join((
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{TITLE}</title><h1>{TITLE}</h1>',
        *(f"<p>{escape(line)}</p>" for line in LINES),
        "<ul>", *(f'<li><a href="{path}">{path}</a>: {escape(label)}</li>' for path, label in links), "</ul></html>\n",
    ))  # fmt: skip

    @get("/", sync_to_thread=False)
    def page(request: Request[object, object, State]) -> Response[str]:
        browser = "text/html" in request.headers.get("accept", "")
        body, kind = (html, MediaType.HTML) if browser else (text, MediaType.TEXT)
        return Response(body, media_type=kind, headers={"vary": "accept", "cache-control": "no-cache"})

    return page
