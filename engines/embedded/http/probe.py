"""Limits the generations that the metrics token may request to one token after a few characters. With it, the router
probes whether this engine still generates.

The holder of that token learns nothing about other requests and takes almost no capacity from them: a probe's prompt is
shorter than a page of the cache, it has no salt and so no tenant's cache, and only one probe runs at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.errors import Overloaded, PermissionDenied
from engines.embedded.http.bodies import StreamOptions

PROBE_BYTES = 1_024
"""Limit of the whole body. The router's probe has about 300 bytes."""
Few = Annotated[str, Meta(max_length=8)]


class ProbeFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields that drivers send for any generation; every other field is forbidden."""

    model: str
    max_tokens: Literal[1]
    n: Literal[1] = 1
    rid: Annotated[str, Meta(pattern="^probe_[0-9a-f]{1,64}$")]
    """No client's request has such an id, so a probe cannot use the id of one."""
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_spec_tokens_details: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


class ProbeMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The only message of a chat probe."""

    role: Literal["user"]
    content: Few


class ChatProbe(ProbeFields, frozen=True, kw_only=True):
    """POST /v1/chat/completions"""

    messages: Annotated[list[ProbeMessage], Meta(max_length=1)]


class CompletionProbe(ProbeFields, frozen=True, kw_only=True):
    """POST /v1/completions"""

    prompt: Few
    echo: bool = False


class ProbeGate:
    """Admits one probe at a time."""

    def __init__(self) -> None:
        self._busy = False

    @contextmanager
    def passage(self, body: bytes, kind: type[ProbeFields]) -> Iterator[None]:
        """Admit a probe. Raises PermissionDenied if the body is not a probe, and Overloaded while another runs."""
        try:
            msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise PermissionDenied(
                "The metrics token opens load, metrics and a probe: one token generated after at most 8 characters, "
                f"without extras. {error}"
            ) from None
        if self._busy:
            raise Overloaded("Another probe is being answered.", retry_after_s=1.0)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
