"""One request that a fake engine answers, token by token, as its script says."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from tests.fakes.chunks import CHUNK, DONE, ChunkWriter
from tests.fakes.engine_state import Asked, Record, StreamOptions
from tests.fakes.script import Script

if TYPE_CHECKING:
    from tests.fakes.engine import Connection

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


class Generating:
    """One request being answered; emits from timers and never waits."""

    def __init__(self, connection: Connection, asked: Asked, record: Record, script: Script, prompts: int) -> None:
        if script.obeys and asked.opening:
            script = msgspec.structs.replace(script, texts=(asked.opening, *script.texts), tokens=script.tokens + 1)
        self._connection = connection
        self._engine = connection.engine
        self._record = record
        self._script = script
        self._prompts = prompts
        self._choices = asked.n * prompts
        self._tokens = min(script.tokens, asked.max_tokens)
        self._reason = b'"length"' if script.tokens >= asked.max_tokens else b'"stop"'
        if script.tool and script.tokens < asked.max_tokens:
            self._reason = b'"tool_calls"'
        options = asked.stream_options or StreamOptions()
        self._chat = record.path.startswith("/v1/chat")
        self._extension = _extension(script, self._choices) if asked.return_spec_tokens_details else {}
        self._final_usage = options.include_usage and script.usage and script.usage_stops_after < 0
        own = script.own_ids and self._choices > 1
        self._writer = ChunkWriter(
            chat=self._chat,
            model=asked.model,
            created=int(time.time()),
            ids=[f"own-{record.rid[-8:]}-{index}" if own else record.rid for index in range(self._choices)],
            prompt_tokens=record.prompt_tokens,
            cached_tokens=record.cached_tokens,
            running_usage=options.continuous_usage_stats and script.usage,
            usage_stops_after=script.usage_stops_after,
            usage_unreadable_after=script.usage_unreadable_after,
            logprobs=asked.logprobs is not None and asked.logprobs is not False,
            texts=script.texts,
            tool=script.tool,
        )
        self.abortable = not own
        self._index = 0
        self._started = False
        self._held: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + script.ttft_s

    def start(self) -> None:
        if self._script.hang:
            return
        if self._script.die_after_tokens == 0:
            self._connection.die()
        elif self._script.ttft_s or self._script.inter_token_s or self._script.text_gap_s:
            self._timer = self._loop.call_at(self._due, self._tick)
        else:
            self._run_at_once()

    def abort(self) -> None:
        """End as SGLang does: a finish_reason of its own, exact usage, [DONE]."""
        self._cancel()
        self._abort([] if self._started else self._begin())

    def finish(self) -> None:
        """End in good order, however much was still to come."""
        self._cancel()
        events = [] if self._started else self._begin()
        events += [self._writer.finish(index, b'"stop"', self._index) for index in range(self._choices)]
        self._end(events)

    def _abort(self, events: list[bytes]) -> None:
        self._record.aborted = True
        events += [self._writer.finish(index, b'"abort"', self._index) for index in range(self._choices)]
        self._end(events)

    def go_on(self) -> None:
        """Say the rest at once, after it fell silent."""
        self._script = msgspec.structs.replace(self._script, hang=False, hang_after_tokens=-1)
        events = [] if self._started else self._begin()
        while not self._step(events):
            pass

    def leave(self) -> None:
        """The caller closed the connection."""
        self._cancel()
        self._record.disconnected = True
        self._engine.live.pop(self._record.rid, None)
        self._engine.changed()

    def _tick(self) -> None:
        if self._script.text_gap_s and not self._started:
            self._send(self._begin())
            self._due += self._script.text_gap_s
            self._timer = self._loop.call_at(self._due, self._tick)
            return
        events = [] if self._started else self._begin()
        stopped = self._step(events)
        if stopped:
            return
        self._send(events)
        self._engine.changed()
        self._due += self._script.inter_token_s
        self._timer = self._loop.call_at(self._due, self._tick)

    def _run_at_once(self) -> None:
        events = self._begin()
        while not self._step(events):
            pass

    def _step(self, events: list[bytes]) -> bool:
        """Add the next token of every choice; True when nothing is to follow."""
        script, index = self._script, self._index
        breaks = (
            script.die_after_tokens,
            script.hang_after_tokens,
            script.error_after_tokens,
            script.abort_after_tokens,
        )
        if index in breaks:
            return self._break_off(events)
        if index >= self._tokens:
            self._end(events)
            return True
        last = index + 1 == self._tokens
        finish = self._reason if last and not self._chat else b"null"
        token = self._writer.token
        events.extend([token(choice, index, finish) for choice in range(self._choices)])
        self._index = index + 1
        self._record.tokens += self._choices
        self._engine.generated_tokens += self._choices
        if last and index + 1 not in breaks:
            if self._chat:
                events.extend([self._writer.finish(choice, self._reason, 0) for choice in range(self._choices)])
            self._end(events)
            return True
        return False

    def _break_off(self, events: list[bytes]) -> bool:
        script = self._script
        if self._index == script.abort_after_tokens:
            if self._index < self._tokens or self._chat:
                self._abort(events)
            else:  # the last token has said how it ended
                self._end(events)
            return True
        if self._index == script.error_after_tokens:
            self._record.finished = True
            self._finish([*events, self._writer.error("scripted failure", script.error_code), DONE])
            return True
        self._send(events)
        self._flush()
        if self._index == script.die_after_tokens:
            self._connection.die()
        self._engine.changed()
        return True

    def _begin(self) -> list[bytes]:
        self._started = True
        self._connection.write(STREAM_HEAD)
        if self._chat and self._script.role_first:
            return [self._writer.role(choice) for choice in range(self._choices)]
        return []

    def _end(self, events: list[bytes]) -> None:
        if self._extension:
            events.append(self._writer.extension(self._extension))
        if self._final_usage:
            events.append(self._writer.usage(self._prompts, self._record.tokens))
        events.append(DONE)
        self._record.finished = True
        self._finish(events)

    def _finish(self, events: list[bytes]) -> None:
        self._engine.live.pop(self._record.rid, None)
        self._send(events)
        self._flush()
        self._connection.write(LAST_CHUNK)
        self._connection.generation_ended()
        self._engine.changed()

    def _send(self, events: list[bytes]) -> None:
        if self._script.split == "joined":
            self._held += events
        elif self._script.split == "byte":
            for event in events:
                self._connection.write_bytes_apart(CHUNK % (len(event), event))
        elif events:
            # events of one moment leave in one segment, as they do from a server on the same loop turn
            self._connection.write(b"".join([CHUNK % (len(event), event) for event in events]))

    def _flush(self) -> None:
        if self._held:
            whole = b"".join(self._held)
            self._held = []
            self._connection.write(CHUNK % (len(whole), whole))

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _extension(script: Script, choices: int) -> dict[str, object]:
    """In the embedded engine's words, of which SGLang has the drafts."""
    told: dict[str, object] = {}
    if script.drafts:
        details = {
            "spec_accept_rate": script.accepted_drafts / script.drafts,
            "spec_num_correct_drafts": script.accepted_drafts,
            "spec_num_proposed_drafts": script.drafts,
            "spec_verify_ct": script.drafts,
        }
        told["spec_tokens_details"] = [details] * choices if choices > 1 else details
    if script.engine_queue_ms >= 0:
        told["request_timing"] = {
            "queue_ms": script.engine_queue_ms,
            "prefill_ms": script.engine_prefill_ms,
            "grammar_ms": script.engine_grammar_ms,
            "retractions": script.retractions,
        }
    return told
