"""Possible changes, with their texts. Rules name these and never invent others."""

from __future__ import annotations

from enum import StrEnum


class Fix(StrEnum):
    """A change. The rule decides whether it helps in its phase."""

    ADMISSION_CONTROL = "admission_control"
    MORE_REPLICAS = "more_replicas"
    SMALLER_BATCH = "smaller_batch"
    BIGGER_BATCH = "bigger_batch"
    CHUNKED_PREFILL = "chunked_prefill"
    PREFIX_CACHING = "prefix_caching"
    CACHE_AWARE_ROUTING = "cache_aware_routing"
    STABLE_PREFIX = "stable_prefix"
    PROMPT_BUDGET = "prompt_budget"
    FASTER_ATTENTION = "faster_attention"
    CHECK_PLACEMENT = "check_placement"
    SPECULATIVE_DECODING = "speculative_decoding"
    KV_QUANTIZATION = "kv_quantization"
    WEIGHT_QUANTIZATION = "weight_quantization"
    CASCADE = "cascade"
    MORE_KV_MEMORY = "more_kv_memory"
    DRAIN_REPLICA = "drain_replica"
    REPAIR_ENGINE = "repair_engine"
    BRING_BACK_ENGINES = "bring_back_engines"
    SAME_SCHEMA = "same_schema"
    MORE_COMPILERS = "more_compilers"
    REPAIR_ENGINE_LINK = "repair_engine_link"
    REPAIR_COUNTERS = "repair_counters"
    REPAIR_ROUTER = "repair_router"
    REPAIR_KEY_LOOKUP = "repair_key_lookup"
    REPAIR_JOURNAL = "repair_journal"
    RESTORE_DATABASE = "restore_database"
    RESTORE_COUNTERS = "restore_counters"
    AWAIT_BUDGETS = "await_budgets"
    RESTORE_JOURNAL = "restore_journal"
    RESTORE_ROUTER = "restore_router"
    ROLL_GATEWAYS = "roll_gateways"
    MORE_GATEWAYS = "more_gateways"
    MORE_CONNECTIONS = "more_connections"
    REPAIR_ADAPTER = "repair_adapter"
    REPORT_DEFECT = "report_defect"
    RAISE_LIMIT = "raise_limit"
    PACE_REQUESTS = "pace_requests"
    READ_FASTER = "read_faster"
    REPAIR_PATH = "repair_path"
    WARM_UP = "warm_up"
    LESS_BEFORE_TEXT = "less_before_text"

    @property
    def told(self) -> str:
        """The change as a sentence."""
        return _TEXTS[self]


_TEXTS = {
    Fix.ADMISSION_CONTROL: (
        "Bound the queue at the edge: shed or downgrade requests that can wait before they queue (router.slos, "
        "gateway.queue_deadline_s, tenants' limits)."
    ),
    Fix.MORE_REPLICAS: "Add replicas to the pool; `slipstream tools simulate` predicts this traffic's latency.",
    Fix.SMALLER_BATCH: (
        "Lower the engine's largest batch (SGLang: --max-running-requests; embedded: engine.scheduler.max_running) "
        "until running requests fit, and operate one notch below the knee of TTFT."
    ),
    Fix.BIGGER_BATCH: "Raise the engine's largest batch.",
    Fix.CHUNKED_PREFILL: (
        "Prefill in chunks that interleave with decoding, or smaller ones (SGLang: --chunked-prefill-size; embedded: "
        "engine.scheduler.max_batch_tokens)."
    ),
    Fix.PREFIX_CACHING: "Keep the KV of prefixes that requests share (system prompts, tools, earlier turns).",
    Fix.CACHE_AWARE_ROUTING: 'Route by prefix (router.policy = "prefix"), so that requests meet their cache again.',
    Fix.STABLE_PREFIX: (
        "Put changing text after constant text: no date, id or user name in the system prompt's beginning, tools and "
        "messages always in the same order."
    ),
    Fix.PROMPT_BUDGET: (
        "Bound prompts: fewer or shorter retrieved passages, older turns summarized, an input cap (`slipstream "
        "customers limits preview --max-prompt-tokens N` counts the requests that it would refuse)."
    ),
    Fix.FASTER_ATTENTION: "Use FlashAttention or FlashInfer kernels, and FP8 activations where quality allows.",
    Fix.CHECK_PLACEMENT: (
        "Check the engine's placement: tensor parallelism within one NVLink node, one dtype throughout, clocks not "
        "throttled."
    ),
    Fix.SPECULATIVE_DECODING: "Decode with drafts that the model verifies (EAGLE-3, n-grams).",
    Fix.KV_QUANTIZATION: "Keep the KV cache in FP8 or INT8, after an evaluation of quality.",
    Fix.WEIGHT_QUANTIZATION: "Quantize the weights.",
    Fix.CASCADE: "Send easy requests to a smaller model.",
    Fix.MORE_KV_MEMORY: "Give the KV cache more memory, or requests less context, so that running requests fit.",
    Fix.DRAIN_REPLICA: "Drain that replica (`slipstream fleet drain`), look at its machine, and bring it back.",
    Fix.BRING_BACK_ENGINES: (
        "See with `slipstream fleet` why the pool has no engine that takes requests: start engines that do not answer, "
        "give those that are drained a weight again (`slipstream fleet replicas weight REPLICA_ID 1`)."
    ),
    Fix.REPAIR_ENGINE: "Read the engine's log: out of memory, crashes, restarts. Repair that before any tuning.",
    Fix.SAME_SCHEMA: (
        "Send the same schema with every request, letter for letter (it is compiled once and kept), and a simpler one: "
        "fewer alternatives, no patterns or long bounds, small enumerations."
    ),
    Fix.MORE_COMPILERS: (
        "Let the engine keep more compiled schemas (engine.grammar.kept) and, where several organizations send new "
        "ones, compile more at a time (engine.grammar.compile_processes): of one organization it compiles one."
    ),
    Fix.REPAIR_ENGINE_LINK: "Look at the way to the engine: its network, its HTTP front end's CPU, its tokenizer.",
    Fix.REPAIR_COUNTERS: (
        "Look at Valkey (latency from the gateway's host, CPU, swapping, slow commands) and at the disk of the "
        "journal: a reservation is one round trip and one record."
    ),
    Fix.REPAIR_ROUTER: "Look at the router: its CPU, its distance to the gateway, `slipstream router watch`.",
    Fix.REPAIR_KEY_LOOKUP: "Look at PostgreSQL, where keys are read, and at how slowly clients send their bodies.",
    Fix.REPAIR_JOURNAL: "Look at the journal's disk (its fsync) and at Valkey, where requests are settled.",
    Fix.RESTORE_DATABASE: (
        "Bring PostgreSQL back (`slipstream status`, `slipstream logs postgres`): gateways then recover automatically."
    ),
    Fix.RESTORE_COUNTERS: (
        "Bring Valkey back (`slipstream logs valkey`; a full disk makes it refuse writes), or serve within each "
        'gateway\'s own share of the limits meanwhile (gateway.limits.when_unavailable = "local").'
    ),
    Fix.AWAIT_BUDGETS: (
        "Budgets are recounted from the ledger after a loss of Valkey, and prices are read from PostgreSQL: if that "
        "does not end, look at `slipstream logs worker` and at PostgreSQL."
    ),
    Fix.RESTORE_JOURNAL: (
        "Free space on the journal's disk or repair it: gateways try again every second, and need no restart."
    ),
    Fix.RESTORE_ROUTER: (
        "Bring the router back (`slipstream status`, `slipstream logs router`); running streams continue meanwhile."
    ),
    Fix.ROLL_GATEWAYS: (
        "Stop gateways and engines one at a time, each once `/readyz` has taken it out of the balancer's list."
    ),
    Fix.MORE_GATEWAYS: "Run more gateways, or on more cores; shorter prompts help as well.",
    Fix.MORE_CONNECTIONS: (
        "Raise the limit of open files (ulimit -n) and gateway.connections.max_connections, or run more gateways."
    ),
    Fix.REPAIR_ADAPTER: (
        "Read in the gateway's log why the adapter was not loaded: its folder as engines see it, its rank, the "
        "engines' adapter slots."
    ),
    Fix.REPORT_DEFECT: (
        "Look the requests up (`slipstream requests list`, then their ids in `slipstream logs gateway-1`) and report "
        "what the log says."
    ),
    Fix.RAISE_LIMIT: "Raise that limit, if the tenant is meant to send so much.",
    Fix.PACE_REQUESTS: "Pace the client: honour Retry-After and X-RateLimit headers instead of retrying at once.",
    Fix.READ_FASTER: (
        "Have the client read tokens as they arrive: no work between two reads, no small receive buffer; look at "
        "its network."
    ),
    Fix.REPAIR_PATH: "Repair the path between client and gateway: see the findings of the audit.",
    Fix.WARM_UP: (
        "Wait; next time, restart replicas one by one, and warm each up with its tenants' prefixes before it "
        "takes traffic."
    ),
    Fix.LESS_BEFORE_TEXT: (
        "Check for generated tokens that are not text: reasoning, tool calls, a grammar that is compiled again for "
        "every request."
    ),
}
