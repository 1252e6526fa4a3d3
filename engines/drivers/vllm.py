"""vLLM's HTTP dialect, as version 0.32 speaks it. A test in `tests/vllm` checks every statement here. vLLM uses our id
as the request's, with the endpoint's name before and the prompt's number after it; two running requests may share it.
"""

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
        # it parses `<|im_end|>` in a message as the control token
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
            # there the lowest number goes first, with `--scheduling-policy priority`; otherwise it is passed over
            body["priority"] = -generation.priority
        opening = opening_of(prompt)
        if opening:
            body["structured_outputs"] = {"regex": opening_pattern(opening)}
        return EngineRequest("POST", path_of(generation), msgspec.json.encode(body), opening)

    def pooled(self, work: PoolingWork, generation: Generation, engine_model: str) -> EngineRequest:
        """Its score endpoint also takes as many queries as documents, unlike its rerank endpoint."""
        if isinstance(work, EmbeddingWork):
            path, body = EMBEDDINGS_PATH, embedding_body(work, engine_model)
        else:
            one = len(work.queries) == 1
            texts: JsonObject = {"text_1": work.queries[0] if one else work.queries, "text_2": work.documents}
            path, body = SCORE_PATH, {"model": engine_model, **texts}
        body["request_id"] = generation.request_id
        if generation.cache_salt:
            body["cache_salt"] = generation.cache_salt
        return EngineRequest("POST", path, msgspec.json.encode(body))

    def abort(self, request_id: str, choices: int = 1) -> EngineRequest | None:
        """The stream then ends as usual: finish_reason `abort`, exact usage, [DONE].

        A chat has one id, whatever its choices; of a completion each prompt has one, and there are not more of these
        than choices. Ids that are not there are passed over.
        """
        if not self._abort_by_id:
            return None
        ids = [f"chatcmpl-{request_id}", *(f"cmpl-{request_id}-{number}" for number in range(choices))]
        return EngineRequest("POST", "/inference/v1/abort_requests", msgspec.json.encode({"request_ids": ids}))

    def load_adapter(self, name: str, path: str) -> EngineRequest:
        """Needs `--enable-lora` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment. Beyond `--max-cpu-loras` it
        gives up the one that was used longest ago, and reads it again when it is asked for."""
        body = msgspec.json.encode({"lora_name": name, "lora_path": path})
        return EngineRequest("POST", "/v1/load_lora_adapter", body)

    def load_refusal(self, status: int, body: bytes) -> str | None:
        said = error_body(body).message
        return None if status == HTTPStatus.OK or ALREADY_LOADED.match(said) else said or f"status {status}"

    def unload_adapter(self, name: str) -> EngineRequest:
        """Accepts no more requests for it; does not wait for running ones."""
        return EngineRequest("POST", "/v1/unload_lora_adapter", msgspec.json.encode({"lora_name": name}))

    def error(self, status: int, body: bytes) -> SlipstreamError:
        said = error_body(body).message
        if said.startswith(NO_SUCH_ADAPTER):
            return AdapterUnavailable("The engine has lost the adapter; try again.", retry_after_s=RETRY_AFTER_S)
        if "--enable-auto-tool-choice" in said or "--tool-call-parser" in said:
            return UnsupportedField(
                "This model cannot choose among tools here: its engine was started without a parser of tool calls.",
                param="tool_choice",
            )
        return engine_error(status, body)

    def health(self) -> EngineRequest:
        """503 once its engine process is dead; needs no token."""
        return EngineRequest("GET", "/health")

    def load(self) -> EngineRequest | None:
        """Its Prometheus page: `/load` only counts the requests of its HTTP server."""
        return EngineRequest("GET", "/metrics")

    def parse_load(self, body: bytes) -> Load:
        """A replica's data-parallel engines together. Its limit of running requests (`--max-num-seqs`) is not
        reported."""
        gauges = (_RUNNING, _WAITING, _USED_SHARE, _PREEMPTIONS)
        sums = sums_of_page(body, lambda name, _: name in gauges)
        if _RUNNING not in sums or _WAITING not in sums:
            raise EngineFailed(self.no_counters)
        sizes = [_cache_tokens(line) for line in body.splitlines() if line.startswith(_CACHE + b"{")]
        # each engine reports the used share of its own memory, and all have the same size
        if _USED_SHARE not in sums:  # memory without a figure for its use would count as empty
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
        """Its Prometheus page."""
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
"""Beginning of the error for loading a loaded adapter. Other refusals quote the adapter's files."""
NO_SUCH_ADAPTER = f"The model `{ENGINE_NAME}"
"""Beginning of the error for a request with an adapter that it does not hold."""


def _cache_tokens(line: bytes) -> int:
    """The size of one engine's KV cache, by its configuration; 0 where it does not say."""
    told = {name: int(value) for name, value in _LABEL.findall(line)}
    return told.get(b"kv_cache_size_tokens") or told.get(b"num_gpu_blocks", 0) * told.get(b"block_size", 0)
