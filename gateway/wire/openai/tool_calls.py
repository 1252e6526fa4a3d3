"""Assigns chunks of an engine's answer to tool calls, and decides how a choice ends, streamed or whole. Pure."""

from __future__ import annotations

import msgspec

from contracts.errors import EngineFailed
from contracts.generation import ChatPrompt, TextPrompt
from contracts.request_id import CHAT_PREFIX
from gateway.wire.openai.schema import MAX_CALLS

NO_ARGUMENTS = "{}"
"""Arguments of a call that ended without any: several engines write nothing."""
UNREAD = "INVALID_JSON"
"""The name under which Anthropic's documentation passes on arguments that are not a JSON object."""
_CUT = ("length", "content_filter")
"""Finish reasons of a choice that is cut."""
_LENGTH = ("MAX_TOKENS", "max_length", "max_tokens", "model_length")
"""Other APIs' names for `length`."""


class Call:
    """A call so far. blank: whether its arguments are empty or white space. pieces: a forced call's arguments."""

    __slots__ = ("blank", "id", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.blank = True
        self.pieces: list[str] = []

    @property
    def whole(self) -> bool:
        """Whether a forced call's arguments are complete."""
        return bool(self.pieces) and self.pieces[-1].rstrip().endswith("}") and is_object("".join(self.pieces))

    def ended_by(self, id_: str | None, name: str | None) -> bool:
        """Whether a chunk with this call's index begins another call."""
        if id_ and self.id:
            return id_ != self.id
        return bool(name and self.name)


class Calls:
    """The calls of one choice, numbered in the order in which they began.

    Engines may number calls with gaps, give several the same index, or give none: another id or a second name begins a
    call. TensorRT-LLM repeats the name of a forced call, which has no id, in each chunk, so such a name begins a call
    only if the arguments before it are whole: other engines write several calls of the function.
    """

    __slots__ = ("_by_index", "_forced", "begun")

    def __init__(self, *, forced: bool = False) -> None:
        """forced: see `forces_call`."""
        self._forced = forced
        self._by_index: dict[int, int] = {}
        """The number of the call to which a chunk with this index belongs."""
        self.begun: list[Call] = []

    def number(self, index: int | None, id_: str | None, name: str | None, arguments: str | None) -> int:
        """The number of the call to which such a chunk would belong."""
        number = self._by_index.get(index or 0)
        if number is None:
            return len(self.begun)
        call = self.begun[number]
        if self._forced and not (name and arguments and arguments.lstrip().startswith("{") and call.whole):
            name = None
        return len(self.begun) if call.ended_by(id_, name) else number

    def add(self, index: int | None, id_: str | None, name: str | None, arguments: str | None) -> int:
        """Add a chunk and return its call's number. Raises EngineFailed for more calls than an answer may hold."""
        number = self.number(index, id_, name, arguments)
        if number == len(self.begun):
            if not 0 <= (index or 0) < MAX_CALLS or number == MAX_CALLS:  # an engine's indices could fill the memory
                raise EngineFailed("The engine sent more tool calls than an answer may hold.")
            self._by_index[index or 0] = number
            self.begun.append(Call())
        call = self.begun[number]
        call.id = id_ or call.id
        call.name = name or call.name
        if (call.blank or self._forced) and arguments and arguments.strip():
            call.blank = False
            if self._forced:
                call.pieces.append(arguments)
        return number

    def without_arguments(self, reason: str | None) -> list[int]:
        """Numbers of the calls that ended without arguments. reason: see `openai_reason`; None for an unfinished
        choice."""
        ended = self.begun
        if reason is None or reason in _CUT:  # the last call is incomplete
            ended = ended[:-1] if reason else []
        return [number for number, call in enumerate(ended) if call.blank]


def is_object(arguments: str | bytes | bytearray) -> bool:
    """Whether a call's arguments are a JSON object."""
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def wrapped(arguments: str) -> bytes:
    """Arguments that are not a JSON object, in one."""
    return msgspec.json.encode({UNREAD: arguments})


def forces_call(prompt: ChatPrompt | TextPrompt) -> bool:
    """Whether the request names the function to call."""
    return isinstance(prompt, ChatPrompt) and isinstance(prompt.tool_choice, dict)


def made_id(response_id: str, choice: int, number: int) -> str:
    """The id of a call to which the engine gave none: clients need one for the call's result."""
    return f"call_{response_id.removeprefix(CHAT_PREFIX)}_{choice}_{number}"


def openai_reason(reason: str, *, calls: bool, forced: bool = False) -> str:
    """OpenAI's finish reason for an engine's, because typed clients accept no other. calls: whether the choice has made
    calls, which decides the reason of a complete choice. forced: whether `tool_choice` names the function to call;
    OpenAI's reason is then `stop`."""
    if reason in _LENGTH:
        return "length"
    if reason in _CUT:
        return reason
    return "tool_calls" if calls and not forced else "stop"
