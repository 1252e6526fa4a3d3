"""A request whose model is known and whose prompt is counted, independent of its wire format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from contracts.adapter import Adapter
from contracts.client_family import EDITORS, OTHER, ClientFamily
from contracts.desired_state import Model
from contracts.errors import ContextTooLong
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt
from contracts.prefix import PrefixChain, of_generation
from contracts.split import Side, shares_caches, side_of, unit_of
from engines.drivers.base import Capabilities
from gateway.wire.conversation import conversation_of
from gateway.wire.digest import digest_of
from gateway.wire.file_identity import file_identity
from gateway.wire.gap import Gap
from gateway.wire.language import known_language

if TYPE_CHECKING:
    from engines.tokenizer.fill import FillTemplate
    from engines.tokenizer.off_loop import OffLoopTokenizer


class Target(msgspec.Struct, frozen=True):
    """The requested model, with its tokenizer and the client's data."""

    model: Model
    capabilities: Capabilities
    tokenizer: OffLoopTokenizer | None
    adapter: Adapter | None = None
    """The caller's own adapter; None for the plain model."""
    client: ClientFamily = OTHER
    """The kind of client."""

    @property
    def fill(self) -> FillTemplate | None:
        """The model's layout of gaps; None if the model has no tokens for them or they are unknown."""
        if self.tokenizer is None or self.tokenizer.tokenizer.fill is None:
            return None
        return self.tokenizer.tokenizer.fill.with_typed_line(self.model.fim.typed_line)

    @property
    def from_editor(self) -> bool:
        """Whether a user types in the client that sends the request."""
        return self.client in EDITORS


class Counted(msgspec.Struct, frozen=True):
    """A prompt in the form that the engine gets, with its tokens."""

    prompt: ChatPrompt | TextPrompt
    tokens: int
    """Tokens of all prompts."""
    longest: int
    """Tokens of the longest prompt."""
    exact: bool
    bound: int
    """Upper bound of the engine's count for all prompts."""
    ids: Sequence[int] | None = None
    """Token ids of a conversation, if the target has a tokenizer."""

    def beginning_with(self, text: str) -> Counted:
        """The same text prompt, whose output must begin with `text` (`TextPrompt.begins_with`)."""
        assert isinstance(self.prompt, TextPrompt)
        return msgspec.structs.replace(self, prompt=msgspec.structs.replace(self.prompt, begins_with=text))


class Prepared(msgspec.Struct, frozen=True):
    """A Generation and its price in tokens."""

    generation: Generation
    prompt_tokens: int
    """Tokens of all prompts; exact if the target has a tokenizer, otherwise an estimate."""
    exact: bool
    prompt_tokens_bound: int = 0
    """Upper bound of the engine's count for all prompts: reserved in budgets."""
    session: str = ""
    """The client's name for its conversation or user, for requests that belong together; never sent to an engine."""
    file: bytes = b""
    """Identity of a gap's file (`gateway.wire.file_identity`); empty without a gap or an identity."""
    warm_up: bool = False
    """Whether the request only puts its prompt into an engine's cache: no user has typed."""
    chain: PrefixChain = PrefixChain("bytes", b"")
    """The prompt's identity for the router."""
    language: str | None = None
    """Language of the completed code, as `known_language` names it; None if the client does not name one."""
    typed: bool = False
    """Whether a newer request for the gap may supersede this one; see `FillRequest`."""
    details: object = None
    """Data for the response, private to the format that prepared the request."""
    gap: Gap | None = None
    """The gap; None if there is none or it is too long to be kept and compared (`Gap.comparable`). The prompt may omit
    text."""
    rules: msgspec.Struct | None = None
    """Rules by which the format ends a gap's response before the model does; equal rules end equal texts alike. None if
    the client wants the model's whole text."""
    salt: str = ""
    """The organization's salt. The generation has the same, unless it belongs to a control arm with its own caches."""
    unit: int = 0
    """Unit of the session (`contracts.split.unit_of`); 0 if the model is not split."""
    service_tier: str | None = None
    """OpenAI's field: the client's value, later the value that the answer names. None if the client sent none."""
    running_usage: bool = False
    """Whether every event of a stream carries the usage so far."""


def prepared(
    counted: Counted,
    sampling: Sampling,
    request_id: str,
    caller: Caller,
    salt: str,
    target: Target,
    *,
    stream: bool,
    include_usage: bool = False,
    session: str = "",
    warm_up: bool = False,
    language: str = "",
    typed: bool = False,
    details: object = None,
    gap: Gap | None = None,
    rules: msgspec.Struct | None = None,
    service_tier: str | None = None,
    running_usage: bool = False,
) -> Prepared:
    """The Generation of a format's request, with its price. language: as the client names it."""
    model = target.model
    file = b"" if gap is None else file_identity(salt, session, gap.path, gap.prefix)
    unit, cache_salt = 0, salt
    if (canary := model.canary) is not None:
        unit = unit_of(caller.organization_id, session or conversation_of(counted.prompt, file))
        if side_of(model, unit) is Side.CONTROL and shares_caches(model, canary):
            cache_salt = digest_of((salt, canary.release)).hex()
    generation = Generation(
        request_id=request_id,
        caller=caller,
        tier=model.tier,
        model=model.name,
        prompt=counted.prompt,
        sampling=sampling,
        stream=stream,
        include_usage=include_usage,
        cache_salt=cache_salt,
        adapter=target.adapter,
    )
    chain = of_generation(generation, counted.ids)
    return Prepared(
        generation,
        counted.tokens,
        counted.exact,
        counted.bound,
        session=session,
        file=file,
        warm_up=warm_up,
        chain=chain,
        language=known_language(language),
        typed=typed,
        details=details,
        gap=gap if gap is not None and gap.comparable else None,
        rules=rules,
        salt=salt,
        unit=unit,
        service_tier=service_tier,
        running_usage=running_usage,
    )


def resampled(prepared: Prepared, **options: Any) -> Prepared:
    """The same request with other sampling options."""
    sampling = msgspec.structs.replace(prepared.generation.sampling, **options)
    generation = msgspec.structs.replace(prepared.generation, sampling=sampling)
    return msgspec.structs.replace(prepared, generation=generation)


def stop_texts(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """A request's `stop`, which may be one text, several or none."""
    return () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)


def output_limit(
    asked: int | None, default: int, prompt_tokens: int, target: Target, param: str, *, lowered: bool = False
) -> int:
    """The output limit for the reservation and the engine's request. lowered: whether a limit above the room is lowered
    to it; otherwise, it raises ContextTooLong.

    Without a tokenizer, the prompt's count is an estimate, so the engine's own check decides instead.
    """
    limit = target.model.context_tokens
    room = limit - prompt_tokens
    if lowered and asked is not None:
        asked = min(asked, room if room > 0 else default)
    if target.tokenizer is None:
        return min(asked or default, limit)
    if room < 1 or (asked is not None and asked > room):
        raise ContextTooLong(
            limit_tokens=limit,
            prompt_tokens=prompt_tokens,
            output_tokens=asked or 1,
            param=param if asked else "prompt",
        )
    return asked if asked is not None else min(default, room)


def estimate(length_bytes: int) -> int:
    """Estimated tokens of a text without a tokenizer: three bytes a token, on the high side for English and code."""
    return length_bytes // 3 + 4
