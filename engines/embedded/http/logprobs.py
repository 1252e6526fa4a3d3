"""Log probabilities in the two shapes of the OpenAI format."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from engines.embedded.output import TokenLogprob
from engines.tokenizer.tokenizer import Tokenizer


def token_name(id_: int, tokenizer: Tokenizer) -> str:
    """A token's text; incomplete characters are written as `bytes:\\\\xe2\\\\x80`, like OpenAI's."""
    data = tokenizer.token_bytes(id_)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def chat_logprobs(entries: Sequence[TokenLogprob], tokenizer: Tokenizer) -> dict[str, Any]:
    """`logprobs` of a chat choice."""

    def token(id_: int, logprob: float) -> dict[str, Any]:
        return {"token": token_name(id_, tokenizer), "bytes": list(tokenizer.token_bytes(id_)), "logprob": logprob}

    return {
        "content": [
            {**token(entry.id, entry.logprob), "top_logprobs": [token(*pair) for pair in entry.top]}
            for entry in entries
        ],
        "refusal": None,
    }


class CompletionLogprobs:
    """`logprobs` of one completion choice, in parts."""

    def __init__(self, tokenizer: Tokenizer, *, echoed: bool = False) -> None:
        """echoed: whether the text begins with the prompt, whose first space some decoders remove."""
        self._tokenizer = tokenizer
        self._offset = 0
        self._may_lose_space = echoed
        # a character may take several tokens, and counts once the last of them has arrived
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def skip(self, characters: int) -> None:
        """Count text without log probabilities before the first token."""
        self._offset += characters

    def more(self, entries: Sequence[TokenLogprob], first_id: int | None = None) -> dict[str, Any]:
        """The next part. first_id: a prompt's first token, which has no probability because nothing precedes it."""
        first: list[int] = [] if first_id is None else [first_id]
        ids = first + [entry.id for entry in entries]
        absent = [None] * len(first)
        return {
            "tokens": [token_name(id_, self._tokenizer) for id_ in ids],
            "token_logprobs": [*absent, *(entry.logprob for entry in entries)],
            "top_logprobs": [*absent, *(self._top(entry) for entry in entries)],
            "text_offset": [self._place(id_) for id_ in ids],
        }

    def _place(self, id_: int) -> int:
        at = self._offset
        if id_ not in self._tokenizer.silent_ids:
            text = self._decoder.decode(self._tokenizer.token_bytes(id_))
            if self._may_lose_space:
                self._may_lose_space = False
                self._offset -= text.startswith(" ") and not self._tokenizer.decode([id_]).startswith(" ")
            self._offset += len(text)
        return at

    def _top(self, entry: TokenLogprob) -> dict[str, float]:
        """The likeliest tokens and the chosen one, hence at most one more than requested."""
        top: dict[str, float] = {}
        for id_, value in (*entry.top, (entry.id, entry.logprob)):
            # if two ids have the same text, keep the likelier one
            top.setdefault(token_name(id_, self._tokenizer), value)
        return top
