"""SGLang's HTTP dialect, as version 0.5.23 speaks it. A test in `tests/sglang` checks every statement here; tests of
the transfer between pairs need a machine with an accelerator."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

import msgspec

from contracts.errors import AdapterUnavailable, EngineFailed, SlipstreamError, UnsupportedField
from contracts.generation import Generation, TextPrompt, opening_of
from contracts.pooling import EmbeddingWork, PoolingWork
from engines.drivers.base import Capabilities, Driver, EngineRequest, Load
from engines.drivers.counters import EngineCounts, EngineStages, sums_of_page
from engines.drivers.engine_json import UNREADABLE_LOAD, decode_engine_json
from engines.drivers.error_bodies import MAX_SENTENCE, RETRY_AFTER_S, TransferFailed, engine_error, error_body
from engines.drivers.openai_body import JsonObject, engine_body, opening_pattern, path_of
from engines.drivers.parameters import SGLANG
from engines.drivers.pooling_body import pooling_body

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
"""The whole prompt, from its first forward pass. `chunked_prefill` is part of this stage, `request_process` comes
before the queue, and neither the queue (`prefill_waiting`) nor decoding is an observed stage."""
ALREADY_LOADED = re.compile(r"LoRA adapter '?[\w-]+'? (?:because it )?is already loaded\.?$")
"""End of the error for loading an adapter that is loaded. Other refusals quote the adapter's files."""
NOT_LOADED = ("LoRA adapters are not loaded", "LoRA adapter that has never been loaded")
"""Parts of the error for a request with an adapter that the engine does not hold."""
PAIR_FAILED = ("Decode handshake failed", "Decode transfer failed")
"""Beginnings of a decode engine's error for a prompt that did not arrive (`disaggregation/decode.py`)."""
DECODE_FAILED = ("HiCache", "Decode instance could be dead", "Duplicate decode bootstrap room")
"""Parts of such a message if the decode engine itself failed. All others are attributed to the prefill engine, which is
the sender, even if they do not name it: `Aborted by AbortReq` reports a lost prefill engine."""
UNREADABLE_ANSWER = "The engine's answer about an adapter cannot be read."


def _load_message(body: bytes) -> str:
    """The message of a response about loading an adapter. SGLang has a separate field for it; the embedded engine uses
    the field of all errors."""
    try:
        message = decode_engine_json(body, dict[str, Any], UNREADABLE_ANSWER).get("error_message")
    except EngineFailed:
        return ""
    return message if isinstance(message, str) and message else error_body(body).message


class SGLangDriver(Driver):
    """Drives a stock SGLang server."""

    name = "sglang"
    capabilities = Capabilities(
        running_count=True,
        token_prompts=True,
        # SGLang parses `<|im_end|>` in a message as the control token
        literal_text=False,
        usage_by_id=False,
        checks_token_ids=False,
        tools_in_prompt="chosen",
        openings=True,
        adapters=True,
        embeds=True,
        scores=True,
        dialects=(name,),
        parameters=SGLANG,
    )
    fills_gaps = False
    """SGLang ignores `suffix` silently unless it was started with a completion template."""
    scores_prompts = False
    """SGLang refuses log probabilities together with `echo`."""
    no_counters = "The engine shows no counters; was it started with --enable-metrics?"
    aborts_choices = False
    """With n > 1, SGLang gives every choice its own id, and `/abort_request` with our id does nothing."""

    def generate(self, generation: Generation, engine_model: str) -> EngineRequest:
        prompt = generation.prompt
        if isinstance(prompt, TextPrompt) and prompt.suffix is not None and not self.fills_gaps:
            raise UnsupportedField(
                "'suffix' is not available for this model here: it has no tokenizer configured.", param="suffix"
            )
        if isinstance(prompt, TextPrompt) and prompt.echo and generation.sampling.best and not self.scores_prompts:
            raise UnsupportedField("'best_of' above 'n' cannot be combined with 'echo' here.", param="best_of")
        body = engine_body(generation, engine_model)
        # SGLang reports the details once, at the end, if tokens were drafted
        body["return_spec_tokens_details"] = True
        body["rid"] = generation.request_id
        opening = opening_of(prompt)
        if opening:
            body |= self._forced(opening)
        if generation.priority:
            # if SGLang orders by priority, no priority is the lowest one without --default-priority-value 0
            body["priority"] = generation.priority
        if generation.adapter is not None:
            # a name, despite the field's; a `model` of the form `model:adapter` would take precedence
            body["lora_path"] = generation.adapter.engine_name
        if (bootstrap := generation.bootstrap) is not None:
            body["bootstrap_host"] = bootstrap.host
            body["bootstrap_port"] = bootstrap.port
            body["bootstrap_room"] = bootstrap.room
        body |= self._own_fields(generation)
        returned = "" if self.capabilities.own_openings else opening
        return EngineRequest("POST", path_of(generation), msgspec.json.encode(body), returned)

    def pooled(self, work: PoolingWork, generation: Generation, engine_model: str) -> EngineRequest:
        """SGLang needs `--is-embedding` for this. Its rerank endpoint takes no id. Neither endpoint takes a salt:
        cached prefixes are shared, but no response reports them."""
        path, body = pooling_body(work, engine_model)
        if isinstance(work, EmbeddingWork):
            body |= self._vector_fields(work, generation)
        return EngineRequest("POST", path, msgspec.json.encode(body))

    def _vector_fields(self, work: EmbeddingWork, generation: Generation) -> JsonObject:
        """The fields with the request's id. SGLang fails if several inputs have only one id."""
        rid, several = generation.request_id, len(work.inputs)
        return {"rid": rid if several == 1 else [f"{rid}-{number}" for number in range(several)]}

    def _own_fields(self, generation: Generation) -> JsonObject:
        """Fields that SGLang lacks. In SGLang, an adaptive table that is set at its start decides about drafts."""
        return {}

    def _forced(self, opening: str) -> JsonObject:
        """The field that makes an output begin with `opening`. SGLang compiles a grammar from it and keeps each grammar
        until its cache is flushed."""
        return {"regex": opening_pattern(opening)}

    def abort(self, request_id: str, choices: int = 1) -> EngineRequest | None:
        """The request that stops a generation, whose stream then ends with finish_reason `abort`, exact usage and
        [DONE]."""
        if choices > 1 and not self.aborts_choices:
            return None
        return EngineRequest("POST", "/abort_request", msgspec.json.encode({"rid": request_id}))

    def load_adapter(self, name: str, path: str) -> EngineRequest:
        """Needs `--enable-lora`. Beyond `--max-loaded-loras`, SGLang itself unloads the least recently used adapter."""
        return EngineRequest("POST", "/load_lora_adapter", msgspec.json.encode({"lora_name": name, "lora_path": path}))

    def load_refusal(self, status: int, body: bytes) -> str | None:
        if status == HTTPStatus.OK:
            return None
        message = _load_message(body)
        return None if ALREADY_LOADED.search(message) else message or f"status {status}"

    def unload_adapter(self, name: str) -> EngineRequest:
        """SGLang responds when its requests with the adapter have ended. A later request makes it load the adapter
        again from the same path."""
        return EngineRequest("POST", "/unload_lora_adapter", msgspec.json.encode({"lora_name": name}))

    def error(self, status: int, body: bytes) -> SlipstreamError:
        reply = error_body(body)
        if any(text in reply.message for text in NOT_LOADED):
            return AdapterUnavailable("The engine has lost the adapter; try again.", retry_after_s=RETRY_AFTER_S)
        if reply.message.startswith(PAIR_FAILED) and not any(text in reply.message for text in DECODE_FAILED):
            return TransferFailed(
                "The engine that computed the prompt did not transfer it.",
                retry_after_s=RETRY_AFTER_S,
                detail=reply.message[:MAX_SENTENCE],
            )
        if status == 400 and (reply.message.startswith("Duplicate request ID") or reply.param == "rid"):
            # an earlier send of the same attempt still runs in the engine, which is not the client's fault
            return EngineFailed("The engine still holds an earlier try of this request.", retry_after_s=RETRY_AFTER_S)
        return engine_error(status, body)

    def health(self) -> EngineRequest:
        """Returns 503 until the engine is warm; needs no token."""
        return EngineRequest("GET", "/health")

    def load(self) -> EngineRequest | None:
        return EngineRequest("GET", "/v1/loads")

    def counts(self) -> EngineRequest:
        """The request for SGLang's Prometheus page, which needs `--enable-metrics`."""
        return EngineRequest("GET", "/metrics")

    def parse_counts(self, body: bytes) -> EngineCounts:
        """A counter is the sum of its samples: one for each model, rank and source.

        The counts of the stages' histograms are not used: an idle SGLang turns every health check into a request, which
        they count and `num_requests_total` does not. With `--enable-metrics-for-all-schedulers`, every rank reports the
        same request, and times and retractions are multiplied by the number of ranks.
        """
        if b"sglang:" not in body:
            raise EngineFailed(self.no_counters)
        totals = dict.fromkeys(_TOTALS, 0.0)  # SGLang shows a counter only after its first increment
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
        """The report has one entry per data-parallel rank; a replica's load is their sum."""
        try:
            ranks: list[dict[str, Any]] = decode_engine_json(body, dict[str, Any], UNREADABLE_LOAD)["loads"]
            if not ranks:
                raise EngineFailed("The engine's load report names no rank.")
            load = Load(
                running=sum(int(rank["num_running_reqs"]) for rank in ranks),
                waiting=sum(int(rank["num_waiting_reqs"]) for rank in ranks),
                used_tokens=sum(int(rank.get("num_used_tokens") or 0) for rank in ranks),
                capacity_tokens=sum(int(rank.get("max_total_num_tokens") or 0) for rank in ranks),
                max_running=sum(int(rank.get("max_running_requests") or 0) for rank in ranks),
                retracted=sum(int(rank.get("num_retracted_requests") or 0) for rank in ranks),
            )
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            raise EngineFailed(UNREADABLE_LOAD) from None
        if all(rank.get("num_used_tokens") is not None for rank in ranks):
            return load
        # memory with unknown use would count as empty
        return msgspec.structs.replace(load, capacity_tokens=0)
