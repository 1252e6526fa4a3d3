"""TensorRT-LLM's HTTP dialect, as `trtllm-serve` speaks it: version 1.2, and 1.4 where the two differ.

The dialect has neither ids nor an abort call: closing the connection stops a request, and the server checks for that
once a second. It refuses unknown fields, so only fields of both versions are sent. tests/fakes/tensorrt_llm.md names
the source of each behaviour.
"""

from __future__ import annotations

import re

import msgspec

from contracts.errors import EngineFailed, SlipstreamError, UnsupportedField
from contracts.generation import ChatPrompt, Generation
from engines.drivers.base import Capabilities, Driver, EngineRequest, Load
from engines.drivers.counters import EngineCounts, sums_of_page
from engines.drivers.engine_json import UNREADABLE_LOAD, decode_engine_json
from engines.drivers.error_bodies import RETRY_AFTER_S, context_too_long, engine_error, error_body
from engines.drivers.openai_body import JsonObject, engine_body, path_of
from engines.drivers.parameters import TENSORRT_LLM

_PROMPT, _CACHED, _GENERATED = _COUNTERS = (
    b"trtllm_prompt_tokens_total",
    b"trtllm_prompt_cached_tokens_total",
    b"trtllm_generation_tokens_total",
)
BAD_REQUEST = 400
INTERNAL_ERROR = 500
REFUSING = ("validation error", "not supported", "are supported", "must be", "must alternate", "invalid", "should ")
"""Words in messages of pydantic, of the server's own checks and of chat templates, in lower case."""
FRONT_ERROR = "Internal server error "
"""Beginning of every failure that `trtllm-serve disaggregated` reports, always with the status 500."""
ONE_CHOICE = ("more than one choice", "choices, expecting 1")
_BEHIND_A_FRONT = re.compile(r"^400, message=.{0,100}?\"message\": ?\"(?P<message>[^\"]{1,400})", re.DOTALL)
"""A context server's 400, as the front quotes it."""
MIDDLE_PRIORITY = 0.5
"""Priority of a request without one."""


class TensorRTLLMDriver(Driver):
    """Drives `trtllm-serve`, for chat.

    request_priorities: the pool's option of this name.
    """

    name = "tensorrt_llm"
    capabilities = Capabilities(
        running_count=True,
        token_prompts=False,
        literal_text=False,
        usage_by_id=False,
        salted_cache=True,
        dialects=(name,),
        parameters=TENSORRT_LLM,
    )

    def __init__(self, *, request_priorities: bool = False) -> None:
        self._request_priorities = request_priorities

    def generate(self, generation: Generation, engine_model: str) -> EngineRequest:
        prompt = generation.prompt
        if not isinstance(prompt, ChatPrompt):
            # `/v1/completions` takes no cache_salt, so tenants would share cached prefixes
            raise UnsupportedField("This model answers chat completions only.", param="model")
        if prompt.tool_choice == "required":
            raise UnsupportedField(
                "'tool_choice' cannot be 'required' for this model here: name a function, or use 'auto'.",
                param="tool_choice",
            )
        if prompt.parallel_tool_calls is False:
            raise UnsupportedField(
                "'parallel_tool_calls' cannot be switched off for this model here.", param="parallel_tool_calls"
            )
        body = engine_body(generation, engine_model)
        body.pop("parallel_tool_calls", None)  # 1.2 does not know it
        if self._request_priorities and generation.priority:
            body["priority"] = unit_priority(generation.priority)
        return EngineRequest("POST", path_of(generation), msgspec.json.encode(body))

    def error(self, status: int, body: bytes) -> SlipstreamError:
        """The server returns 400 for nearly all errors, even its own failures, so the status does not show whose fault
        an error is. The message identifies requests that the server finds invalid, and the 500s of a front of
        prefill/decode pairs."""
        message = error_body(body).message
        if status == INTERNAL_ERROR and message.startswith(FRONT_ERROR):
            return _behind_a_front(message.removeprefix(FRONT_ERROR)) or engine_error(status, body)
        too_long = context_too_long(message)
        if status == BAD_REQUEST and too_long is None and not _is_validation(message):
            return EngineFailed(
                "The engine failed.", retry_after_s=RETRY_AFTER_S, detail=f"status {status}: {message[:400]}"
            )
        return engine_error(status, body)

    def health(self) -> EngineRequest:
        """Returns 503 with a sentence once the server's executor is dead."""
        return EngineRequest("GET", "/health")

    def load(self) -> EngineRequest | None:
        """The request for the statistics of each iteration since the last read, so there must be only one reader. They
        are empty unless the server's `enable_iter_perf_stats` is true."""
        return EngineRequest("GET", "/metrics")

    def parse_load(self, body: bytes) -> Load | None:
        """The load of the last iteration, with the drafts and retractions of all iterations since the previous report.
        None if there was no iteration.

        A paused request is in one iteration only: the sum counts all of them, except in iterations that were never
        read.
        """
        try:
            iterations = decode_engine_json(body, list[JsonObject], UNREADABLE_LOAD)
            if not iterations:
                return None
            last = iterations[-1]
            kv: JsonObject = last.get("kvCacheStats") or {}
            # memory with unknown use would count as empty
            block = int(kv.get("tokensPerBlock") or 0) if kv.get("usedNumBlocks") is not None else 0
            batches: list[JsonObject] = [each.get("inflightBatchingStats") or {} for each in iterations]
            drafting: list[JsonObject] = [each.get("specDecodingStats") or {} for each in iterations]
            return Load(
                running=int(last["numActiveRequests"]),
                waiting=int(last["numQueuedRequests"]),
                used_tokens=int(kv.get("usedNumBlocks") or 0) * block,
                capacity_tokens=int(kv.get("maxNumBlocks") or 0) * block,
                max_running=int(last.get("maxNumActiveRequests") or 0),
                retracted_since=sum(int(batch.get("numPausedRequests") or 0) for batch in batches),
                draft_tokens=sum(int(drafts.get("numDraftTokens") or 0) for drafts in drafting),
                accepted_draft_tokens=sum(int(drafts.get("numAcceptedTokens") or 0) for drafts in drafting),
            )
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError):
            raise EngineFailed(UNREADABLE_LOAD) from None

    def counts(self) -> EngineRequest:
        """The request for the server's Prometheus page, which needs `return_perf_metrics: true`."""
        return EngineRequest("GET", "/prometheus/metrics")

    def parse_counts(self, body: bytes) -> EngineCounts:
        """Version 1.2 counts requests and seconds, but no tokens."""
        totals = sums_of_page(body, lambda name, _: name in _COUNTERS)
        if not {_PROMPT, _GENERATED} <= totals.keys():
            raise EngineFailed("The engine counts no tokens; is it older than 1.3, or without return_perf_metrics?")
        return EngineCounts(round(totals[_PROMPT]), round(totals.get(_CACHED, 0.0)), round(totals[_GENERATED]))


def unit_priority(priority: int) -> float:
    """Map any priority of ours to the server's range from 0 to 1, in the same order, and 0 to `MIDDLE_PRIORITY`."""
    return MIDDLE_PRIORITY + MIDDLE_PRIORITY * priority / (1 + abs(priority))


def _is_validation(message: str) -> bool:
    """Whether the error is about the request (such as a template's sentence about roles), not a broken engine."""
    start = message[:200].lower()
    return any(words in start for words in REFUSING)


def _behind_a_front(message: str) -> SlipstreamError | None:
    """The error about the request that a front reports as 500; None for a failure."""
    if any(words in message[:200] for words in ONE_CHOICE):
        return UnsupportedField("This model returns one choice: send the request 'n' times instead.", param="n")
    match = _BEHIND_A_FRONT.match(message)
    if match is None or (context_too_long(match["message"]) is None and not _is_validation(match["message"])):
        return None
    return engine_error(BAD_REQUEST, msgspec.json.encode({"message": match["message"]}))
