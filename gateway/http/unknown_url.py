"""Creates the error for an unknown URL, which corrects common mistakes. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping

from contracts.errors import NotFound

VERSION = "/v1"
MESSAGES = f"{VERSION}/messages"
HEALTH = {"/healthz": "GET", "/health": "GET", "/readyz": "GET"}
ADMIN = "/admin/v1"
NOT_SERVED = {
    "api": "Ollama's own API is",
    "assistants": "OpenAI's Assistants API is",
    "audio": "Speech is",
    "edits": "OpenAI's edits are",
    "fine_tuning": "Fine-tuning is",
    "images": "Images are",
    "moderations": "Moderation is",
    "realtime": "OpenAI's Realtime API is",
    "threads": "OpenAI's Assistants API is",
    "uploads": "Uploads in parts are",
    "vector_stores": "Vector stores are",
}
"""Paths of other servers' APIs, by the first segment after /v1."""
METRICS = (
    "Each process has its metrics at a port of its own, at /metrics: `slipstream status` lists them, and "
    "gateway.metrics.port sets a gateway's."
)
APART = (
    "The admin API, the console, files, batches and OpenAI's organization API are not on this port (control.mounted = "
    "false): `slipstream control` serves them, by default on port 8001."
)
CONTROL = frozenset({"admin", "console", "batches", "files", "organization"})
"""First segments of the control plane's paths, after /v1 where they have it."""
MAX_COMPARED = 200
"""Characters of a path that are compared and repeated."""
_ALIKE = 0.8


def unknown_url(
    method: str, path: str, served: Mapping[str, str], administered: Collection[str] = frozenset()
) -> NotFound:
    """The refusal, with the intended address if it is known. served: the methods of the inference paths. administered:
    the admin API's paths below its own, with `{name}` for parameters; empty if the API is elsewhere."""
    shown = path if len(path) <= MAX_COMPARED else f"{path[:MAX_COMPARED]}…"
    advice = _advice(re.sub("/+", "/", shown).rstrip("/"), served, administered)
    return NotFound(f"Unknown request URL: {method} {shown}. {advice}")


def _advice(path: str, served: Mapping[str, str], administered: Collection[str]) -> str:
    steps = [step for step in path.split("/") if step not in ("", VERSION[1:])]
    if not steps:
        return f"{VERSION} is a base URL. {_all(served)}"
    if steps[0] in CONTROL and not administered:
        return APART
    if steps[0] == "admin":
        meant = _meant_of_administration(steps[1:], administered)
        text = f"Did you mean {ADMIN}{meant}?" if meant else f"The admin API is {ADMIN};"
        return f"{text} GET {ADMIN}/openapi.json describes it."
    bare = path.removeprefix(VERSION)
    if _versioned(path) and bare in served and not _versioned(bare):
        return f"Did you mean {served[bare]} {bare}? Its clients' base URL is this address without {VERSION}."
    if path.endswith(MESSAGES):
        return f"Did you mean POST {MESSAGES}? The base URL of Anthropic's clients is this address without {VERSION}."
    if endings := [meant for meant in served if _versioned(meant) and path.endswith(meant.removeprefix(VERSION))]:
        meant = max(endings, key=len)
        return f"Did you mean {served[meant]} {meant}? Set the client's base URL to this address followed by {VERSION}."
    if steps == ["metrics"]:
        return METRICS
    if steps[0] in NOT_SERVED:
        return f"{NOT_SERVED[steps[0]]} not served here. {_all(served)}"
    known = {**served, **HEALTH}
    for candidate in (path, f"{VERSION}/{'/'.join(steps)}"):
        if near := difflib.get_close_matches(candidate, known, 1, _ALIKE):
            return f"Did you mean {known[near[0]]} {near[0]}?"
    return _all(served) if _versioned(path) else "GET / lists the APIs at this address."


def _meant_of_administration(steps: list[str], administered: Collection[str]) -> str:
    """The path with its mistyped steps corrected, if such a path exists; else empty. Strangers choose the path, so a
    step is compared only with the words at its position in paths of the same length."""
    alike = [known for path in administered if len(known := path.strip("/").split("/")) == len(steps)]
    for at, step in enumerate(steps):
        words = {known[at] for known in alike if not known[at].startswith("{")}
        near = step if step in words else next(iter(difflib.get_close_matches(step, words, 1, _ALIKE)), None)
        alike = [known for known in alike if known[at] == near or known[at].startswith("{")]
    if not alike:
        return ""
    meant = min(alike, key=lambda known: sum(word.startswith("{") for word in known))
    return "/" + "/".join(step if word.startswith("{") else word for word, step in zip(meant, steps, strict=True))


def _versioned(path: str) -> bool:
    return path.startswith(f"{VERSION}/")


def _all(served: Mapping[str, str]) -> str:
    return f"Served: {', '.join(f'{how} {path}' for path, how in served.items())}."
