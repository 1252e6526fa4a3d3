"""Tabby's request for a completion. Only this module knows its request field names.

`segments` describes an editor's file and the files around it. Tabby's own server ignores unknown fields there, and its
agents add such fields from version to version. They are hints, so they are ignored here too. Unknown fields of the
request itself are refused by name.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.wire.fill.request import AskedConfidence

MAX_SNIPPETS = 256

Text = Annotated[str, Meta(max_length=4_000_000)]
Name = Annotated[str, Meta(max_length=4_096)]
Tag = Annotated[str, Meta(max_length=512)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Declaration(msgspec.Struct):
    """The declaration of a name near the cursor."""

    filepath: Name
    body: Text


class RelevantSnippet(msgspec.Struct):
    """A chunk of another file. Its `score` is the client's own and is not read: the best come first."""

    filepath: Name
    body: Text


Declarations = Annotated[list[Declaration], Meta(max_length=MAX_SNIPPETS)]
RelevantSnippets = Annotated[list[RelevantSnippet], Meta(max_length=MAX_SNIPPETS)]


class Segments(msgspec.Struct):
    """The text around the cursor. `edit_history` is not read."""

    prefix: Text
    suffix: Text | None = None
    filepath: Name | None = None
    """Path relative to the repository."""
    git_url: Name | None = None
    """URL of the repository; with `filepath`, it identifies the file."""
    declarations: Declarations | None = None
    relevant_snippets_from_changed_files: RelevantSnippets | None = None
    relevant_snippets_from_recently_opened_files: RelevantSnippets | None = None
    clipboard: Text | None = None


class SegmentsRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/completions with `segments`."""

    segments: Segments
    language: Tag | None = None
    """The language server's name for the language; None if unknown."""
    user: Tag | None = None
    mode: Literal["standard"] | None = None
    """`next_edit_suggestion` is not served."""
    temperature: Temperature | None = None
    seed: Seed | None = None
    min_confidence: AskedConfidence = None
    """Our own field: an answer whose tokens' probabilities have a lower geometric mean is empty."""
    model: Annotated[str, Meta(max_length=256)] = ""
    """Our own field; empty for the first autocomplete model that the key may use. Tabby's clients name none."""
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    """Our own field; None for as many as Tabby's own server generates."""
