"""Formats text_completion, streamed or whole. A chunk has the same shape, and the last text includes the finish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engines.embedded.http.bodies import CompletionBody
from engines.embedded.http.logprobs import CompletionLogprobs
from engines.embedded.http.wire import Format, encode, ending, finish_fields, logprobs_of, text_of
from engines.embedded.output import Delta
from engines.embedded.request import Request
from engines.tokenizer.tokenizer import Tokenizer


class CompletionFormat(Format):
    """The responses to one completion request."""

    def __init__(self, request: Request, body: CompletionBody, model: str, tokenizer: Tokenizer) -> None:
        super().__init__(request, model, "text_completion", "text_completion")
        self._request = request
        self._chosen = body.n or 1
        self._report = body.logprobs is not None
        self._logprobs = [CompletionLogprobs(tokenizer, echoed=bool(body.echo)) for _ in range(request.choices)]
        prompts = [prompt for prompt in request.prompts for _ in range(request.choices_per_prompt)]
        self._echo = [tokenizer.decode(prompt) if body.echo else "" for prompt in prompts]
        self._echo_ids: list[int | None] = [prompt[0] if request.sampling.score_prompt else None for prompt in prompts]

    def chunk(self, delta: Delta, usage: bytes) -> bytes:
        """A chunk of text, with the finish in the last one."""
        text = self._take_echo(delta.index) + delta.text
        return b'%b{"index":%d,"text":%b,"logprobs":%b,%b' % (
            self._head,
            delta.index,
            encode(text),
            encode(self._entries(delta.index, [delta])),
            ending(delta.finish, usage),
        )

    def choices(self, choices: Sequence[Sequence[Delta]]) -> list[dict[str, Any]]:
        """One text per choice; with `best_of`, only the likeliest of each prompt."""
        best = enumerate(self._best(choices))
        return [self._choice(index, number, choices[number]) for index, number in best]

    def _choice(self, index: int, number: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        return {
            "index": index,
            "text": self._take_echo(number) + text_of(deltas),
            "logprobs": self._entries(number, deltas, whole=True),
            **finish_fields(deltas[-1].finish),
        }

    def _best(self, choices: Sequence[Sequence[Delta]]) -> list[int]:
        """Numbers of the choices to return, by prompt."""
        tried = self._request.choices_per_prompt
        if tried == self._chosen:
            return list(range(len(choices)))
        best: list[int] = []
        for first in range(0, len(choices), tried):
            numbers = range(first, first + tried)
            scored = len(self._request.prompts[first // tried]) - 1 if self._request.sampling.score_prompt else 0
            likelihoods = {number: _likelihood(choices[number], scored) for number in numbers}
            best += sorted(numbers, key=likelihoods.__getitem__, reverse=True)[: self._chosen]
        return best

    def _take_echo(self, number: int) -> str:
        text, self._echo[number] = self._echo[number], ""
        if text and self._echo_ids[number] is None:
            self._logprobs[number].skip(len(text))
        return text

    def _entries(self, number: int, deltas: Sequence[Delta], *, whole: bool = False) -> dict[str, Any] | None:
        """whole: whether the deltas are the complete response, which may have no token."""
        if not self._report:
            return None
        first_id, self._echo_ids[number] = self._echo_ids[number], None
        entries = logprobs_of(deltas)
        if not entries and first_id is None and not whole:
            return None
        return self._logprobs[number].more(entries, first_id)


def _likelihood(deltas: Sequence[Delta], scored: int) -> float:
    """Mean log probability per generated token. scored: number of prompt tokens that have log probabilities."""
    values = [entry.logprob for entry in logprobs_of(deltas)][scored:]
    return sum(values) / len(values) if values else float("-inf")
