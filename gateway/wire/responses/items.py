"""The output items of one response while they grow."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from gateway.wire.chunk import text_of_insides
from gateway.wire.responses.sealed import sealed
from gateway.wire.responses.tools import Named, input_of

Kind: TypeAlias = Literal["reasoning", "message", "call"]
ID_PREFIXES: dict[Kind, str] = {"reasoning": "rs_", "message": "msg_", "call": "fc_"}
CUSTOM_PREFIX = "ctc_"


class Growing:
    """An item and its growing text: reasoning, an answer, a refusal or a call's arguments."""

    __slots__ = ("_text", "id", "index", "kind", "refused", "status")

    def __init__(self, kind: Kind, index: int, id_: str) -> None:
        self.kind = kind
        self.index = index
        self.id = id_
        self.status = "in_progress"
        """`completed` or `incomplete` once the item is closed."""
        self.refused = False
        """Whether the text is a refusal."""
        self._text: list[str | list[bytes]] = []

    @property
    def text(self) -> str:
        """The text so far."""
        text = "".join([part if isinstance(part, str) else text_of_insides(part) for part in self._text])
        self._text = [text]
        return text

    def grow(self, text: str | list[bytes]) -> None:
        """Extend the text. text: a string, or the undecoded contents of JSON strings."""
        self._text.append(text)

    def part(self, text: str) -> dict[str, Any]:
        """The item's only part, with this text."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        if self.refused:
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def json(self, status: str, *, encrypted: bool) -> dict[str, Any]:
        """The item as the API writes it. encrypted: whether reasoning has `encrypted_content`."""
        begun = status != "in_progress"
        content = [self.part(self.text)] if begun else []
        if self.kind == "reasoning":
            item = {"type": "reasoning", "id": self.id, "summary": [], "content": content, "status": status}
            return {**item, "encrypted_content": sealed(self.text)} if encrypted and begun else item
        return {"type": "message", "id": self.id, "role": "assistant", "content": content, "status": status}


class GrowingCall(Growing):
    """A call of a tool."""

    __slots__ = ("call_id", "named")

    def __init__(self, index: int, id_: str, call_id: str, named: Named) -> None:
        super().__init__("call", index, id_)
        self.call_id = call_id
        self.named = named

    def json(self, status: str, *, encrypted: bool) -> dict[str, Any]:
        item: dict[str, Any] = {
            "type": "custom_tool_call" if self.named.custom else "function_call",
            "id": self.id,
            "call_id": self.call_id,
            "name": self.named.name,
            "status": status,
        }
        if self.named.namespace is not None:
            item["namespace"] = self.named.namespace
        if self.named.custom:
            item["input"] = "" if status == "in_progress" else input_of(self.text)
        else:
            item["arguments"] = "" if status == "in_progress" else self.text
        return item
