"""Merges leading system and developer messages, because chat templates of many models refuse a second.

Qwen 3.5 and later, Gemma and others fail on any system message but the first, and clients such as OpenCode send
several. They are merged for every model: a model that accepts several gets the same words in the same order.
"""

from __future__ import annotations

import itertools
from typing import Any

JsonObject = dict[str, Any]
BETWEEN = "\n\n"


def with_one_system(messages: tuple[JsonObject, ...]) -> tuple[tuple[JsonObject, ...], int]:
    """The messages with the leading `system` messages merged into the first, and the number of those merged into it.

    Texts are joined by an empty line. If one message has parts, the merged message has parts, so that marks of parts
    stay in their positions. A `name` stays if all have the same.
    """
    leading = list(itertools.takewhile(lambda message: message["role"] == "system", messages))
    if len(leading) < 2:
        return messages, 0
    contents = [message["content"] for message in leading]
    content: Any
    if all(isinstance(each, str) for each in contents):
        content = BETWEEN.join(contents)
    else:
        content = [part for each in contents for part in _parts(each)]
    first: JsonObject = {"role": "system", "content": content}
    names = {message.get("name") for message in leading}
    if len(names) == 1 and (name := names.pop()) is not None:
        first["name"] = name
    return (first, *messages[len(leading) :]), len(leading) - 1


def _parts(content: str | list[JsonObject]) -> list[JsonObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
