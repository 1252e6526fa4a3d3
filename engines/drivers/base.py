"""The interface of a driver: what the gateway and the router need from an engine's dialect, except transport.

A driver is pure: it builds requests and reads responses. `engines/http/` does the I/O. One driver knows one dialect;
one instance serves every replica of every pool with the same options.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Literal, Protocol

import msgspec

from contracts.errors import EngineFailed, SlipstreamError, UnsupportedField
from contracts.generation import Generation
from contracts.pooling import PoolingWork
from contracts.usage import Usage
from engines.drivers.parameters import Parameter

ToolsInPrompt = Literal["all", "callable", "chosen"]
TOOLS_IN_PROMPT: tuple[ToolsInPrompt, ...] = ("all", "callable", "chosen")
"""From the most tools in the prompt to the fewest."""
_NO_PARAMETERS: Mapping[str, Parameter] = MappingProxyType({})


class Capabilities(msgspec.Struct, frozen=True):
    """Reliable features of a dialect."""

    running_count: bool
    """Events carry the usage so far, so that a lost engine leaves a lower bound. With several choices, an event counts
    its own choice only; the last event, which has no choices, counts all."""
    token_prompts: bool
    """Completions may be sent as token ids."""
    literal_text: bool
    """Special-token strings in user text stay text; otherwise the gateway refuses them by name."""
    usage_by_id: bool
    """The final usage of a past request can be requested by id (crash recovery)."""
    checks_token_ids: bool = True
    """The engine refuses a token id outside the vocabulary; otherwise such an id crashes it and must never reach it."""
    tools_in_prompt: ToolsInPrompt = "all"
    """The tools in the prompt. callable: none if `tool_choice` is "none"; chosen: none in the same case, and only the
    named tool if it names one."""
    stop_ids: bool = True
    """A request may name token ids that end its text."""
    min_tokens: bool = True
    """A request may set the least number of tokens of a text."""
    openings: bool = False
    """An output can be made to begin with a given text, which the response then leaves out."""
    own_openings: bool = False
    """The engine itself leaves that text out, matches no stop string in it, and caches nothing for it. Otherwise a
    grammar forces the text, and the engine caches one grammar for each text."""
    adapters: bool = False
    """LoRA adapters can be loaded and unloaded while the engine serves."""
    salted_cache: bool = True
    """One tenant's cached prefixes never serve another tenant. Otherwise the cached part of a prompt reveals other
    tenants' prompts, so neither a count nor a price may depend on it."""
    embeds: bool = False
    """Vectors of texts can be requested."""
    scores: bool = False
    """Scores of pairs of texts can be requested."""
    dialects: tuple[str, ...] = ()
    """Names of the drivers, for errors."""
    parameters: Mapping[str, Parameter] = _NO_PARAMETERS
    """Parameters of the engines' own API that a client may send, by name."""


def strictest(one: Capabilities, other: Capabilities) -> Capabilities:
    """Features common to two dialects, for a request that may reach either, such as under a canary."""
    merged = {
        name: getattr(one, name) and getattr(other, name)
        for name, kind in Capabilities.__annotations__.items()
        if kind == "bool"
    }
    # the dialect that puts more tools into the prompt, because the token count must be enough for both
    widest = next(kind for kind in TOOLS_IN_PROMPT if kind in (one.tools_in_prompt, other.tools_in_prompt))
    return msgspec.structs.replace(
        one,
        **merged,
        tools_in_prompt=widest,
        dialects=tuple(sorted({*one.dialects, *other.dialects})),
        parameters={name: kind for name, kind in one.parameters.items() if name in other.parameters},
    )


class EngineRequest(msgspec.Struct, frozen=True):
    """An HTTP request to an engine, relative to the replica's URL. body: JSON, or empty."""

    method: str
    path: str
    body: bytes = b""
    opening: str = ""
    """Text with which each choice of the response begins, and which its reader must not receive."""


MAX_COUNTED = 2**53
"""Limit of a count; up to here, floating-point numbers represent every integer."""
MAX_REQUESTS = 100_000
"""Limit of the requests that an engine has at a time."""


class Load(msgspec.Struct, frozen=True):
    """One replica's load report. Raises EngineFailed for impossible counts, because the router computes with them."""

    running: int = 0
    waiting: int = 0
    used_tokens: int = 0
    """KV tokens that running requests hold; cached prefixes that could be evicted do not count."""
    capacity_tokens: int = 0
    """0 if not reported."""
    max_running: int = 0
    """Most requests that it runs at a time; 0 if not reported."""
    retracted: int = 0
    """Requests evicted from memory since the engine started, to be recomputed; 0 if not reported."""
    retracted_since: int = 0
    """Retractions since the previous report, if reports contain them."""
    step_tokens: int = 0
    """Tokens that it computes in a step; 0 if not reported."""
    share_behind: float = 0.0
    """Part of a step that the engine takes from the oldest prompt and gives to later ones, the shortest first; 0 if it
    computes prompts in the order of arrival."""
    promised_tokens: int = 0
    """KV tokens reserved for running requests and not yet used; 0 if not reported."""
    output_reserve: float = 0.0
    """Share of a request's longest response that the engine reserves at its start; 0 if not reported."""
    draft_tokens: int = 0
    """Draft tokens checked since the previous report, if reports contain them and responses do not."""
    accepted_draft_tokens: int = 0
    """The accepted ones of these draft tokens."""

    def __post_init__(self) -> None:
        counts = (
            self.running, self.waiting, self.used_tokens, self.capacity_tokens, self.max_running, self.retracted,
            self.retracted_since, self.step_tokens, self.draft_tokens, self.accepted_draft_tokens, self.promised_tokens,
        )  # fmt: skip
        shares = self.share_behind, self.output_reserve
        requests = self.running, self.waiting, self.max_running
        if (
            not all(0 <= count <= MAX_COUNTED for count in counts)
            or not all(count <= MAX_REQUESTS for count in requests)
            or not all(0 <= share <= 1 for share in shares)
        ):
            raise EngineFailed("The engine's load report has an impossible number.")


class Driver(Protocol):
    """One engine dialect with one pool's options. All methods are pure; parse methods raise `EngineFailed` on invalid
    responses. A dialect lacks the features that it does not override."""

    name: str
    capabilities: Capabilities

    def generate(self, generation: Generation, engine_model: str) -> EngineRequest:
        """The streaming request for one attempt, built from the Generation alone.

        The driver always requests a stream with final usage (and running counts if the engine has them). The gateway
        assembles whole responses from it, so that a client that leaves is metered the same way. Raises UnsupportedField
        for fields that the dialect cannot express.
        """
        ...

    def pooled(self, work: PoolingWork, generation: Generation, engine_model: str) -> EngineRequest:
        """The request for vectors or scores; the response is one JSON body, and closing the connection stops the
        engine. generation: its id and salt. Raises UnsupportedField for work that the dialect cannot express."""
        raise UnsupportedField(f"Engines of the driver {self.name!r} make neither vectors nor scores.", param="model")

    def abort(self, request_id: str, choices: int = 1) -> EngineRequest | None:
        """The request that stops a generation by its id; None if closing the connection is the only way.

        choices: `Generation.choices`; a dialect may be able to stop one choice by id but not several.
        """
        return None

    def usage_by_id(self, request_id: str) -> EngineRequest | None:
        """The request for a past generation's final usage; None if the engine keeps none."""
        return None

    def parse_usage_by_id(self, status: int, body: bytes) -> Usage | None:
        """The usage in a response to `usage_by_id`; None if the request is unknown or still running."""
        return None

    def load_adapter(self, name: str, path: str) -> EngineRequest | None:
        """The request that loads a LoRA adapter under a name; None if adapters cannot be loaded."""
        return None

    def load_refusal(self, status: int, body: bytes) -> str | None:
        """The engine's reason for a failed `load_adapter`; None if the engine now holds the adapter."""
        return None if status == HTTPStatus.OK else f"status {status}"

    def unload_adapter(self, name: str) -> EngineRequest | None:
        """The request that unloads an adapter. The response may wait for the requests that use the adapter."""
        return None

    def error(self, status: int, body: bytes) -> SlipstreamError:
        """A non-200 response as one of our errors.

        A 4xx that the client caused becomes EngineRefused (or ContextTooLong) with the engine's sentence. 429 and 503
        become Overloaded, unless a provider reports that our account has no credit. All others become EngineFailed. The
        `detail` of Overloaded and EngineFailed has the engine's own words, for the log. `event_error` of
        `engines.drivers.error_bodies` also calls this for an error event in a stream that carries such a status.
        """
        ...

    def health(self) -> EngineRequest:
        """A cheap request that returns 200 when the engine can serve."""
        ...

    def load(self) -> EngineRequest | None:
        """The request for the current load; None if the engine has no such report. Only the router may send it, because
        an engine may report each fact once (ADR 21)."""
        return None

    def parse_load(self, body: bytes) -> Load | None:
        """The response to `load`; None if it contains nothing new."""
        return Load()
