"""vLLM's HTTP dialect, as version 0.32 speaks it. A test in `tests/vllm` checks every statement here. vLLM's id of a
request is ours between the endpoint's name and the prompt's number; two running requests may have the same id."""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

from contracts.adapter import ENGINE_NAME
from contracts.errors import AdapterUnavailable, EngineFailed, SlipstreamError, UnsupportedField
from contracts.generation import Generation, TextPrompt, opening_of
from contracts.pooling import EmbeddingWork, PoolingWork
from engines.drivers.base import Capabilities, Driver, EngineRequest, Load
from engines.drivers.counters import EngineCounts, EngineStages, sums_of_page
from engines.drivers.error_bodies import RETRY_AFTER_S, engine_error, error_body
from engines.drivers.openai_body import JsonObject, engine_body, opening_pattern, path_of
from engines.drivers.parameters import VLLM
from engines.drivers.pooling_body import EMBEDDINGS_PATH, SCORE_PATH, embedding_body

_RUNNING, _WAITING, _USED_SHARE, _CACHE = (
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
    b"vllm:kv_cache_usage_perc",
    b"vllm:cache_config_info",
)
_PREEMPTIONS = b"vllm:num_preemptions_total"
_PROMPT, _CACHED, _GENERATED = _COUNTERS = (
    b"vllm:prompt_tokens_total",
    b"vllm:prompt_tokens_cached_total",
    b"vllm:generation_tokens_total",
)
_QUEUE, _PREFILL, _REQUESTS = (
    b"vllm:request_queue_time_seconds_sum",
    b"vllm:request_prefill_time_seconds_sum",
    b"vllm:request_success_total",
)
_TOTALS = (*_COUNTERS, _QUEUE, _PREFILL, _REQUESTS, _PREEMPTIONS)
_LABEL = re.compile(rb'[{,](kv_cache_size_tokens|num_gpu_blocks|block_size)="(\d{1,15})"')


class VLLMDriver(Driver):
    """Drives `vllm serve`.

    abort_by_id: the pool's option of this name.
    """

    name = "vllm"
    no_counters = "The engine shows no counters; was it started with --disable-log-stats?"
    capabilities = Capabilities(
        running_count=True,
        token_prompts=True,
        # vLLM parses `<|im_end|>` in a message as the control token
        literal_text=False,
        usage_by_id=False,
        openings=True,
        adapters=True,
        embeds=True,
        scores=True,
        dialects=(name,),
        parameters=VLLM,
    )

    def __init__(self, *, abort_by_id: bool = False) -> None:
        self._abort_by_id = abort_by_id

    def generate(self, generation: Generation, engine_model: str) -> EngineRequest:
        prompt, sampling = generation.prompt, generation.sampling
        if isinstance(prompt, TextPrompt) and prompt.suffix is not None:
            raise UnsupportedField(
                "'suffix' is not available for this model here: it has no tokenizer configured.", param="suffix"
            )
        if sampling.n > 1 and sampling.temperature == 0:
            raise UnsupportedField(
                "Several choices need a 'temperature' above 0 for this model here: at 0 all would be the same.",
                param="n",
            )
        body = engine_body(generation, engine_model)
        body["request_id"] = generation.request_id
        if generation.adapter is not None:
            body["model"] = generation.adapter.engine_name
        if generation.priority:
            # vLLM serves the lowest number first with `--scheduling-policy priority`, and otherwise ignores it
            body["priority"] = -generation.priority
        opening = opening_of(prompt)
        if opening:
            body["structured_outputs"] = {"regex": opening_pattern(opening)}
        return EngineRequest("POST", path_of(generation), msgspec.json.encode(body), opening)

    def pooled(self, work: PoolingWork, generation: Generation, engine_model: str) -> EngineRequest:
        """The request for vectors or scores. vLLM's score endpoint also takes as many queries as documents, unlike its
        rerank endpoint."""
        if isinstance(work, EmbeddingWork):
            path, body = EMBEDDINGS_PATH, embedding_body(work, engine_model)
        else:
            queries = work.queries[0] if len(work.queries) == 1 else work.queries
            texts: JsonObject = {"text_1": queries, "text_2": work.documents}
            path, body = SCORE_PATH, {"model": engine_model, **texts}
        body["request_id"] = generation.request_id
        if generation.cache_salt:
            body["cache_salt"] = generation.cache_salt
        return EngineRequest("POST", path, msgspec.json.encode(body))

    def abort(self, request_id: str, choices: int = 1) -> EngineRequest | None:
        """The request that stops a generation, whose stream then ends with finish_reason `abort`, exact usage and
        [DONE].

        A chat has one id for all its choices. A completion has one id for each prompt, and no more prompts than
        choices. vLLM ignores unknown ids.
        """
        if not self._abort_by_id:
            return None
        ids = [f"chatcmpl-{request_id}", *(f"cmpl-{request_id}-{number}" for number in range(choices))]
        return EngineRequest("POST", "/inference/v1/abort_requests", msgspec.json.encode({"request_ids": ids}))

    def load_adapter(self, name: str, path: str) -> EngineRequest:
        """vLLM needs `--enable-lora` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment for this. Beyond
        `--max-cpu-loras`, it drops the least recently used adapter and loads it again when a request needs it."""
        body = msgspec.json.encode({"lora_name": name, "lora_path": path})
        return EngineRequest("POST", "/v1/load_lora_adapter", body)

    def load_refusal(self, status: int, body: bytes) -> str | None:
        message = error_body(body).message
        return None if status == HTTPStatus.OK or ALREADY_LOADED.match(message) else message or f"status {status}"

    def unload_adapter(self, name: str) -> EngineRequest:
        """vLLM then accepts no more requests with the adapter; it does not wait for running ones."""
        return EngineRequest("POST", "/v1/unload_lora_adapter", msgspec.json.encode({"lora_name": name}))

    def error(self, status: int, body: bytes) -> SlipstreamError:
        message = error_body(body).message
        if message.startswith(NO_SUCH_ADAPTER):
            return AdapterUnavailable("The engine has lost the adapter; try again.", retry_after_s=RETRY_AFTER_S)
        if "--enable-auto-tool-choice" in message or "--tool-call-parser" in message:
            return UnsupportedField(
                "This model cannot choose among tools here: its engine was started without a parser of tool calls.",
                param="tool_choice",
            )
        return engine_error(status, body)

    def health(self) -> EngineRequest:
        """Returns 503 once vLLM's engine process is dead; needs no token."""
        return EngineRequest("GET", "/health")

    def load(self) -> EngineRequest | None:
        """The request for vLLM's Prometheus page, because `/load` only counts the requests of its HTTP server."""
        return EngineRequest("GET", "/metrics")

    def parse_load(self, body: bytes) -> Load:
        """The load of all data-parallel engines of a replica. vLLM does not report its limit of running requests
        (`--max-num-seqs`)."""
        gauges = (_RUNNING, _WAITING, _USED_SHARE, _PREEMPTIONS)
        sums = sums_of_page(body, lambda name, _: name in gauges)
        if _RUNNING not in sums or _WAITING not in sums:
            raise EngineFailed(self.no_counters)
        sizes = [_cache_tokens(line) for line in body.splitlines() if line.startswith(_CACHE + b"{")]
        # each engine reports the used share of its own memory, and all have the same size
        if _USED_SHARE not in sums:  # memory with unknown use would count as empty
            sizes = []
        used_tokens = round(sums[_USED_SHARE] * sum(sizes) / len(sizes)) if sizes else 0
        return Load(
            running=round(sums[_RUNNING]),
            waiting=round(sums[_WAITING]),
            used_tokens=used_tokens,
            capacity_tokens=sum(sizes),
            retracted=round(sums.get(_PREEMPTIONS, 0.0)),
        )

    def counts(self) -> EngineRequest:
        """The request for vLLM's Prometheus page."""
        return EngineRequest("GET", "/metrics")

    def parse_counts(self, body: bytes) -> EngineCounts:
        """A counter is the sum of its samples: one for each engine and reason."""
        totals = sums_of_page(body, lambda name, _: name in _TOTALS)
        if not {_PROMPT, _GENERATED} <= totals.keys():
            raise EngineFailed(self.no_counters)
        totals = dict.fromkeys(_TOTALS, 0.0) | totals
        return EngineCounts(
            round(totals[_PROMPT]),
            round(totals[_CACHED]),
            round(totals[_GENERATED]),
            EngineStages(
                queue_s=totals[_QUEUE],
                prefill_s=totals[_PREFILL],
                requests=round(totals[_REQUESTS]),
                retractions=round(totals[_PREEMPTIONS]),
            ),
        )


ALREADY_LOADED = re.compile(r"The lora adapter '[\w-]+' has already been loaded")
"""Beginning of the error for loading an adapter that is loaded. Other refusals quote the adapter's files."""
NO_SUCH_ADAPTER = f"The model `{ENGINE_NAME}"
"""Beginning of the error for a request with an adapter that vLLM does not hold."""


def _cache_tokens(line: bytes) -> int:
    """The size in tokens of one engine's KV cache, from its configuration; 0 if not reported."""
    labels = {name: int(value) for name, value in _LABEL.findall(line)}
    return labels.get(b"kv_cache_size_tokens") or labels.get(b"num_gpu_blocks", 0) * labels.get(b"block_size", 0)
