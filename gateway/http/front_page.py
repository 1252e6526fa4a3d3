"""The page at the gateway's root address: the product and the links, without models or customers."""

from __future__ import annotations

from html import escape

from litestar import MediaType, Request, Response, get
from litestar.datastructures import State

TITLE = "Slipstream"
LINES = (
    "This address serves language models by OpenAI's HTTP API.",
    "Base URL for clients: this address and /v1, with an API key from its operator.",
)
LINKS = (
    ("/console", "the console, for people who administer it"),
    ("/openapi.json", "what can be asked"),
    ("/admin/v1/openapi.json", "the API of administrators, who have keys of their own"),
    ("/readyz", "whether it serves now"),
)
_TEXT = "\n".join((TITLE, "", *LINES, "", *(f"{path:<24}{what}" for path, what in LINKS), ""))
_HTML = "".join((
    f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{TITLE}</title><h1>{TITLE}</h1>',
    *(f"<p>{escape(line)}</p>" for line in LINES),
    "<ul>", *(f'<li><a href="{path}">{path}</a>: {escape(what)}</li>' for path, what in LINKS), "</ul></html>\n",
))  # fmt: skip


@get("/", sync_to_thread=False)
def front_page(request: Request[object, object, State]) -> Response[str]:
    """GET /: HTML for a browser, plain text for everything else."""
    browser = "text/html" in request.headers.get("accept", "")
    body, kind = (_HTML, MediaType.HTML) if browser else (_TEXT, MediaType.TEXT)
    return Response(body, media_type=kind, headers={"vary": "accept", "cache-control": "no-cache"})
