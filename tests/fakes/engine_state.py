"""What a fake engine is asked, what it notes of it, and what all its connections share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tests.fakes.script import Script

if TYPE_CHECKING:
    from tests.fakes.generating import Generating

KEPT_RECORDS = 20_000


class StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


_ANYTHING = "[\\s\\S]*"
_ESCAPED = re.compile(r"\\(.)")


class StructuredOutputs(msgspec.Struct, frozen=True):
    """vLLM's field."""

    regex: str = ""


class Asked(msgspec.Struct):
    """The fields of a generation request that change the answer."""

    model: str = "default"
    rid: str = ""
    n: int = 1
    max_tokens: int = 16
    stream: bool = False
    stream_options: StreamOptions | None = None
    prompt: msgspec.Raw = msgspec.Raw(b"")
    logprobs: bool | int | None = None
    return_spec_tokens_details: bool = False
    regex: str = ""
    structured_outputs: StructuredOutputs = StructuredOutputs()

    @property
    def opening(self) -> str:
        """The text that a grammar forces the output to begin with; empty: none. Of other patterns nothing is known."""
        pattern = self.regex or self.structured_outputs.regex
        return _ESCAPED.sub(r"\1", pattern.removesuffix(_ANYTHING)) if pattern.endswith(_ANYTHING) else ""


class Record(msgspec.Struct):
    """What happened to one request. body is raw JSON, headers are lower case."""

    rid: str
    path: str
    headers: dict[str, str]
    body: msgspec.Raw
    tokens: int = 0
    """Generated, all choices together."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    finished: bool = False
    """The answer was written to its end, aborted or not."""
    aborted: bool = False
    disconnected: bool = False
    """The caller left before the end."""

    @property
    def ended(self) -> bool:
        return self.finished or self.disconnected


class FakeEngine:
    """State shared by all connections."""

    def __init__(self, token: str, model: str, kept_records: int = KEPT_RECORDS, *, brief: bool = False) -> None:
        """brief: records keep neither headers nor body, for runs of very many requests."""
        self.token = f"Bearer {token}".encode() if token else b""
        self.model = model
        self.brief = brief
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        """Since the process started, as SGLang's counters."""
        self._kept_records = kept_records
        self.script = Script()
        self.healthy = True
        self.records: dict[str, Record] = {}
        self.live: dict[str, Generating] = {}
        self.requests = 0
        self.connections = 0
        self._waiters: list[tuple[Callable[[], bool], Callable[[], None]]] = []

    def record(self, record: Record) -> None:
        self.requests += 1
        self.records[record.rid] = record
        if len(self.records) > self._kept_records:
            del self.records[next(iter(self.records))]

    def changed(self) -> None:
        """Something a waiter may wait for."""
        if self._waiters:
            ready = [entry for entry in self._waiters if entry[0]()]
            self._waiters = [entry for entry in self._waiters if entry not in ready]
            for _, answer in ready:
                answer()

    def wait(self, query: dict[str, str], answer: Callable[[], None]) -> None:
        """answer is called once the counters of all records have reached those in the query."""
        counters = {
            "requests": lambda: self.requests,
            "ended": lambda: sum(record.ended for record in self.records.values()),
            "finished": lambda: sum(record.finished for record in self.records.values()),
            "aborted": lambda: sum(record.aborted for record in self.records.values()),
            "disconnected": lambda: sum(record.disconnected for record in self.records.values()),
            "tokens": lambda: sum(record.tokens for record in self.records.values()),
        }
        wanted = {name: int(count) for name, count in query.items()}
        self._waiters.append((lambda: all(counters[name]() >= count for name, count in wanted.items()), answer))
        self.changed()

    def control(self, body: bytes) -> None:
        """`healthy` and `reset` are the engine's own; every other field is the default script's."""
        fields: dict[str, Any] = msgspec.json.decode(body)
        self.healthy = fields.pop("healthy", self.healthy)
        if fields.pop("reset", False):
            self.script = Script()
            self.records.clear()
            self.requests = 0
        self.script = msgspec.convert({**msgspec.structs.asdict(self.script), **fields}, Script)

    def metrics(self) -> str:
        """The counters that reconciliation reads, in SGLang's names."""
        values = {
            "prompt_tokens_total": self.prompt_tokens,
            "cached_tokens_total": self.cached_tokens,
            "generation_tokens_total": self.generated_tokens,
        }
        return "".join(f'sglang:{name}{{model_name="{self.model}"}} {float(value)}\n' for name, value in values.items())

    def loads(self) -> dict[str, Any]:
        running = len(self.live)
        rank = {
            "dp_rank": 0,
            "num_running_reqs": running,
            "num_waiting_reqs": 0,
            "num_used_tokens": 100 * running,
            "max_total_num_tokens": 100_000,
            "token_usage": running / 1_000,
        }
        return {"version": "fake", "loads": [rank]}
