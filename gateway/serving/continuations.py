"""Finds an earlier request's generation that also answers a gap.

If the same gap is requested again while it is being filled, one generation answers both requests. If a gap's prefix is
an earlier one's plus some characters, all else being equal, and the model wrote exactly these, the rest of its text is
the response. So a user who types the shown text pays for no second generation and sees the rest at once.

Only requests of the same key share a generation, and only within one process. Digests of prompts and generated texts
stay in its memory for `KEPT_S` after their last use.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from gateway.observability.metrics import GatewayMetrics
from gateway.serving.attempt import Attempt
from gateway.serving.follower import Follower
from gateway.serving.recording import Cursor, End, Reading, Recording
from gateway.serving.request import InferenceRequest
from gateway.supersession.lineage import MAX_TYPED
from gateway.wire.digest import digest_of
from gateway.wire.fill.request import judged, opening_of

LIMIT_BYTES = 16 * 1024 * 1024
"""Limit for ended recordings of one process, about 12,000 short ones. The least recently used is dropped first."""
ENTRY_BYTES = 1_200
"""Approximate size of a recording without its text."""
TOKEN_BYTES = 140
"""Approximate size of a token with its probability, which judged responses have."""
KEPT_S = 60.0
KEPT_CHARACTERS = 4_096
"""Longest text kept. A longer one is no completion between two keystrokes, and is dropped with its request."""
LOOKED_AT = 16
"""Recordings checked per position in a file, newest first."""
ONE_ANSWER = 0.1
"""Highest temperature at which two equal requests share a response. Above it, a script may want several different
responses, so only keystrokes share one."""


class Question(msgspec.Struct, frozen=True):
    """The parts of a request that decide whether an earlier generation answers it."""

    place: bytes
    """See `Cursor`."""
    prefix: str
    most_tokens: int
    ended_by: bytes
    """See `Cursor`."""

    def cursor(self) -> Cursor:
        """The position from which the request wants text."""
        return Cursor(self.place, len(self.prefix), digest_of((self.prefix,)), self.ended_by)

    def typed(self, recording: Recording) -> str | None:
        """The text by which the prefix extends the recording's; None if the recording cannot answer the request."""
        cursor, before = recording.cursor, recording.cursor.characters
        typed = self.prefix[before:]
        if not 0 <= len(self.prefix) - before <= MAX_TYPED or not recording.written.text.startswith(typed):
            return None
        if recording.end is None:
            # at least half of the tokens, each a character or more, must still follow
            if cursor.ended_by != self.ended_by or 2 * len(typed) > self.most_tokens:
                return None
        elif not recording.end.kept or not typed:  # a client that repeats an answered request wants another response
            return None
        return typed if digest_of((self.prefix[:before],)) == cursor.prefix_digest else None


def question_of(request: InferenceRequest) -> Question | None:
    """The request's question; None if the request needs its own generation."""
    model, prepared, generation = request.target.model, request.prepared, request.generation
    gap, sampling = prepared.gap, generation.sampling
    if gap is None or prepared.warm_up or not model.fim.reuse or request.purpose is not None:
        return None
    if generation.choices > 1 or (sampling.logprobs is not None and not judged(prepared.details)):
        return None
    wants_one = sampling.seed is not None or (sampling.temperature is not None and sampling.temperature <= ONE_ANSWER)
    if not request.typed and not wants_one:
        return None
    identity = request.caller, model, generation.adapter, sampling, gap.path, gap.language
    ended_by = prepared.rules, request.typed, prepared.session, request.network
    snippets = (text for snippet in gap.snippets for text in (snippet.path, snippet.text))
    place = digest_of((repr(identity), gap.suffix, *snippets))
    return Question(place, gap.prefix, sampling.max_tokens, digest_of((repr(ended_by),)))


class Continuations:
    """The recordings of one process. Used on its event loop only; stop it with the pipeline."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        client_stall_timeout_s: float,
        now: Callable[[], float] = time.monotonic,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """client_stall_timeout_s: see `ServingConfig`. now: monotonic seconds."""
        self._metrics = metrics
        self._client_stall_timeout_s = client_stall_timeout_s
        self._now = now
        self._limit_bytes = limit_bytes
        self._places: dict[bytes, dict[Recording, None]] = {}
        """Recordings by `Cursor.place`, oldest first."""
        self._kept: dict[Recording, float] = {}
        """Recordings of ended requests, with their expiry, the least recently used first."""
        self._kept_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        """Runs while a recording is kept."""

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))

    def stop(self) -> None:
        """Drop all recordings."""
        while self._kept:
            self._drop(next(iter(self._kept)))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @contextlib.contextmanager
    def joined(self, request: InferenceRequest) -> Iterator[str | None]:
        """Within this block, the request reads an earlier request's recording or records its own text for later
        requests, if it shares at all. Yields the earlier request's id; None if the request reads no recording."""
        question = question_of(request)
        if question is not None:
            self._forget()
            request.reading = self._find(question)
            if request.reading is None:
                request.recording = self._record(request, question)
        try:
            yield None if request.reading is None else request.reading.recording.request_id
        finally:
            if request.reading is not None:
                request.reading.close()
            if request.recording is not None:
                self._keep(request.recording)

    async def follow(self, attempt: Attempt) -> bytes | None:
        """Answer from the recording that the request reads. Returns the bytes that end the answer; None if no recording
        serves: nothing was sent, and an engine must answer. Raises the errors of `Follower.run`."""
        request, reading = attempt.request, attempt.request.reading
        if reading is None:
            return None
        closing = await Follower(attempt, reading, self._client_stall_timeout_s).run()
        if request.superseded_by is not None:
            self._metrics.superseded("decode" if attempt.transcoder.text_seen else "prefill")
        else:
            kind = "abandoned" if closing is None else "continued" if reading.typed else "shared"
            self._metrics.reused(request.tier, kind)
        if closing is None:
            reading.close()
            request.reading, question = None, question_of(request)
            assert question is not None
            request.recording = self._record(request, question)
        return closing

    def _find(self, question: Question) -> Reading | None:
        recordings = self._places.get(question.place, {})
        for recording in itertools.islice(reversed(recordings), LOOKED_AT):
            typed = question.typed(recording)
            if typed is None:
                continue
            reading = recording.read(typed)
            if recording.end is not None and not reading.worthwhile:
                reading.close()
                continue
            if recording in self._kept:
                del self._kept[recording]
                self._kept[recording] = self._now() + KEPT_S
            return reading
        return None

    def _record(self, request: InferenceRequest, question: Question) -> Recording:
        recording = Recording(request.request_id, question.cursor(), opening_of(request.prepared.details))
        self._places.setdefault(question.place, {})[recording] = None
        return recording

    def _keep(self, recording: Recording) -> None:
        """Keep the recording of an ended request."""
        recording.close(End.BROKEN)
        if recording.end is not None and recording.end.kept and len(recording.written.text) <= KEPT_CHARACTERS:
            self._kept[recording] = self._now() + KEPT_S
            self._kept_bytes += bytes_of(recording)
            self._forget()
        else:
            self._remove(recording)

    def _forget(self) -> None:
        """Drop expired recordings and those over the limit, and schedule the next expiry."""
        now_s = self._now()
        while self._kept:
            oldest, until_s = next(iter(self._kept.items()))
            if until_s > now_s and self._kept_bytes <= self._limit_bytes:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(until_s - now_s, self._later)
                return
            self._drop(oldest)

    def _later(self) -> None:
        self._timer = None
        self._forget()

    def _drop(self, recording: Recording) -> None:
        del self._kept[recording]
        self._kept_bytes -= bytes_of(recording)
        self._remove(recording)

    def _remove(self, recording: Recording) -> None:
        place = recording.cursor.place
        recordings = self._places[place]
        del recordings[recording]
        if not recordings:
            del self._places[place]


def bytes_of(recording: Recording) -> int:
    """Approximate size in memory of an ended recording, whose text no longer changes."""
    written = recording.written
    listed = sum(len(text) for text, _ in written.tokens)  # an engine may list tokens that the text lacks
    return ENTRY_BYTES + sys.getsizeof(written.text) + TOKEN_BYTES * len(written.tokens) + listed
