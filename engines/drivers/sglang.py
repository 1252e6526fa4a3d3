"""SGLang's HTTP dialect, as version 0.5.23 speaks it. Every statement here is held by a test in `tests/sglang`."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import EngineFailed, SlipstreamError, UnsupportedField
from contracts.generation import Generation, TextPrompt
from engines.drivers.base import Capabilities, Driver, EngineRequest, Load
from engines.drivers.counters import EngineCounts, EngineStages, sums_of_page
from engines.drivers.error_bodies import RETRY_AFTER_S, engine_error, error_body
from engines.drivers.openai_body import JsonObject, openai_body, path_of

_PROMPT, _CACHED, _GENERATED = _COUNTERS = (
    b"sglang:prompt_tokens_total",
    b"sglang:cached_tokens_total",
    b"sglang:generation_tokens_total",
)
_QUEUE, _PREFILL, _REQUESTS, _RETRACTIONS = (
    b"sglang:queue_time_seconds_sum",
    b"sglang:per_stage_req_latency_seconds_sum",
    b"sglang:num_requests_total",
    b"sglang:num_retracted_requests_total",
)
_TOTALS = (*_COUNTERS, _QUEUE, _PREFILL, _REQUESTS, _RETRACTIONS)
_PREFILL_STAGE = b'stage="prefill_forward"'
"""The whole prompt, from its first forward pass on. `chunked_prefill` is a part of it, `request_process` comes before
the queue, and the queue itself (`prefill_waiting`) and decoding have no stage that is observed."""


class SGLangDriver(Driver):
    """Drives a stock SGLang server."""

    name = "sglang"
    capabilities = Capabilities(
        running_count=True,
        token_prompts=True,
        # it parses `<|im_end|>` in a message as the control token
        literal_text=False,
        usage_by_id=False,
        checks_token_ids=False,
        tools_in_prompt="chosen",
    )
    fills_gaps = False
    """SGLang ignores `suffix` silently unless it was started with a completion template."""
    scores_prompts = False
    """SGLang refuses log probabilities together with `echo`."""
    no_counters = "The engine shows no counters; is it started with --enable-metrics?"
    aborts_choices = False
    """With n > 1 SGLang gives every choice an id of its own, and `/abort_request` for ours does nothing."""

    def generate(self, generation: Generation, engine_model: str) -> EngineRequest:
        prompt = generation.prompt
        if isinstance(prompt, TextPrompt) and prompt.suffix is not None and not self.fills_gaps:
            raise UnsupportedField(
                "'suffix' is not available for this model here: it has no tokenizer configured.", param="suffix"
            )
        if isinstance(prompt, TextPrompt) and prompt.echo and generation.sampling.best and not self.scores_prompts:
            raise UnsupportedField("'best_of' above 'n' cannot be combined with 'echo' here.", param="best_of")
        body = openai_body(generation, engine_model)
        # usage so far with every event: of the event's own choice, while the last event counts all choices together
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        # told once, at the end, where tokens were guessed ahead
        body["return_spec_tokens_details"] = True
        body["rid"] = generation.request_id
        if generation.sampling.min_tokens:
            body["min_tokens"] = generation.sampling.min_tokens
        if generation.sampling.stop_ids:
            body["stop_token_ids"] = generation.sampling.stop_ids
        if isinstance(prompt, TextPrompt) and prompt.begins_with:
            body |= self._opening(prompt.begins_with)
        if generation.priority:
            body["priority"] = generation.priority
        if generation.cache_salt:
            body["cache_salt"] = generation.cache_salt
        return EngineRequest("POST", path_of(generation), msgspec.json.encode(body))

    def _opening(self, text: str) -> JsonObject:
        """What makes an output begin with a text that is not told. SGLang's `regex` would tell it, and be compiled anew
        for every keystroke."""
        raise UnsupportedField("The output cannot be made to begin with a text here.", param="prompt")

    def abort(self, request_id: str, choices: int = 1) -> EngineRequest | None:
        """The stream then ends as usual: finish_reason `abort`, exact usage, [DONE]."""
        if choices > 1 and not self.aborts_choices:
            return None
        return EngineRequest("POST", "/abort_request", msgspec.json.encode({"rid": request_id}))

    def error(self, status: int, body: bytes) -> SlipstreamError:
        said = error_body(body)
        if status == 400 and (said.message.startswith("Duplicate request ID") or said.param == "rid"):
            # an earlier send of the same attempt still runs there: no fault of the client's
            return EngineFailed("The engine still holds an earlier try of this request.", retry_after_s=RETRY_AFTER_S)
        return engine_error(status, body)

    def health(self) -> EngineRequest:
        """Answers 503 until warm; needs no token."""
        return EngineRequest("GET", "/health")

    def load(self) -> EngineRequest | None:
        return EngineRequest("GET", "/v1/loads")

    def counts(self) -> EngineRequest:
        """Its Prometheus page; SGLang has one when started with `--enable-metrics`."""
        return EngineRequest("GET", "/metrics")

    def parse_counts(self, body: bytes) -> EngineCounts:
        """A counter is the sum of its samples: one for each model, rank and source.

        The counts of the stages' histograms are not used: an idle SGLang makes a request of every look at its health,
        which they count and `num_requests_total` does not. With `--enable-metrics-for-all-schedulers` every rank tells
        the same request: times and retractions are then too high by their number.
        """
        if b"sglang:" not in body:
            raise EngineFailed(self.no_counters)
        totals = dict.fromkeys(_TOTALS, 0.0)  # SGLang shows a counter only once it has counted
        totals |= sums_of_page(
            body, lambda name, line: name in _TOTALS and (name != _PREFILL or _PREFILL_STAGE in line)
        )
        return EngineCounts(
            round(totals[_PROMPT]),
            round(totals[_CACHED]),
            round(totals[_GENERATED]),
            EngineStages(
                queue_s=totals[_QUEUE],
                prefill_s=totals[_PREFILL],
                requests=round(totals[_REQUESTS]),
                retractions=round(totals[_RETRACTIONS]),
            ),
        )

    def parse_load(self, body: bytes) -> Load:
        """One entry per data-parallel rank; a replica's load is their sum."""
        try:
            ranks: list[dict[str, Any]] = msgspec.json.decode(body)["loads"]
            return Load(
                running=sum(int(rank["num_running_reqs"]) for rank in ranks),
                waiting=sum(int(rank["num_waiting_reqs"]) for rank in ranks),
                used_tokens=sum(int(rank.get("num_used_tokens") or 0) for rank in ranks),
                capacity_tokens=sum(int(rank.get("max_total_num_tokens") or 0) for rank in ranks),
                max_running=sum(int(rank.get("max_running_requests") or 0) for rank in ranks),
                retracted=sum(int(rank.get("num_retracted_requests") or 0) for rank in ranks),
            )
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            raise EngineFailed("The engine's load report cannot be read.") from None
