"""The desired state of the fleet: models, pools and replicas, as one versioned document.

It is stored as a row per version and seeded from the settings file. Gateways send it to the router, which keeps the
highest version.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from contracts.cascade import Cascade
from contracts.engine_parameters import TemplateValue, check_passed, check_variables
from contracts.errors import ConfigError
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from contracts.pooling import Task
from contracts.speculation import SpeculationRule

Role = Literal["unified", "prefill", "decode"]
"""The part of a request that a pool's engines compute: the whole request, its prompt, or its response."""
RESERVED_NAMES = frozenset({"all", ".", ".."})
"""Names that no model or alias may have."""
PAIR_DRIVERS = frozenset({"sglang"})
"""Drivers whose engines can share a request."""

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


class Canary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A second pool that serves a share of a model's sessions, to try a change on a few sessions first."""

    pool: str
    """The pool that serves the canary."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    """Share of the sessions that the canary serves. A session stays on its side as long as the share only grows."""
    engine_model: str | None = None
    """Name of the model on the canary's engines, if it differs from the model's name."""
    control: bool = False
    """Whether an equal share of the sessions forms a control arm. It is served like the baseline, with caches as fresh
    as the canary's, so that the two can be compared."""
    control_pool: str = ""
    """The pool of the control arm, with fresh replicas that are configured like those of the model's pool. Empty: the
    model's pool, where a separate cache salt keeps the control arm from using cached prompts of other sessions."""
    shadow_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of the requests that are also copied to `pool`. The copies' responses are neither delivered nor billed."""
    release: str = ""
    """The release that created this split and will end it. Traces name it. Empty: no release."""
    salt: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[0-9A-Za-z]*$")] = ""
    """Secret that determines the sides: a client that knows it can compute the side of each session. Each release draws
    a new salt. Empty: no secret, so that a tenant who knows the other fields can choose a side. This is safe only if no
    release is judged by the split."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model as clients see it."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The name that clients send as `model`. It must differ from every other model's name and alias."""
    tier: Tier
    """`chat` serves `/v1/chat/completions`; `autocomplete` serves `/v1/completions` with fill-in-the-middle. The tier
    determines limits, objectives and deadlines."""
    pool: str
    """The pool whose replicas serve the model."""
    context_tokens: Annotated[int, msgspec.Meta(ge=1)]
    """Maximum length of prompt and response together."""
    aliases: tuple[str, ...] = ()
    """Other names that clients may use for the model."""
    task: Task = Task.TEXT
    """`text` generates text. `embedding` serves only `/v1/embeddings`; `rerank` serves only `/v1/rerank` and
    `/v1/score`. Both need the driver `sglang`, `vllm`, `openai` or `llama_cpp`; embeddings also work with `embedded`.
    """
    description: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """A sentence about the model and its use, which `/v1/models` and the playground show."""
    tokenizer: str | None = None
    """Folder with tokenizer.json (and a chat template), or a GGUF file, with which the gateway counts and encodes
    prompts exactly. Without it, counts are estimates, and fill-in-the-middle prompts are sent as text."""
    engine_model: str | None = None
    """Name of the model on its engines, if it differs from `name`."""
    default_max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 512
    """Output limit of a request that sets none. It never exceeds the rest of the context."""
    chat_template_kwargs: dict[str, TemplateValue] = {}
    """Default variables of the model's chat template, which a request can override: `{ enable_thinking = false }` turns
    off the thinking of Qwen 3. The engines must accept `chat_template_kwargs` (all drivers except `openai`)."""
    fim: FillInTheMiddle = FillInTheMiddle()
    """How the model's fill-in-the-middle gaps are laid out, filled and ended."""
    canary: Canary | None = None
    """A pool that serves some of the model's sessions instead of `pool`."""
    cascade: Cascade | None = None
    """A small model that answers some of the model's requests first. Default: none."""

    @property
    def answering_pools(self) -> tuple[str, ...]:
        """The pools that may serve a request for it, its own first."""
        split = () if self.canary is None else (self.canary.pool, self.canary.control_pool)
        return tuple(dict.fromkeys(name for name in (self.pool, *split) if name))


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine process, or one load-balanced address."""

    id: str
    """Name of the replica in `slipstream fleet`, metrics and traces. It must be unique across all pools."""
    url: str
    """URL of the engine up to `/v1/…`: `http(s)://host[:port][/path]`."""
    weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Share of load relative to the pool's other replicas; 0 drains it."""
    hardware: str = ""
    """Hardware of the replica as reports show it, such as `H200x2`. Empty: the pool's `hardware`."""
    speed: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Prefill speed relative to the pool's other replicas. It applies until the router has measured the replica."""
    context_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Maximum length of prompt and response together; 0 means the model's limit."""
    speculation: bool = False
    """Whether the replica was started with speculative decoding."""
    bootstrap_port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """Port of a prefill engine from which decode engines fetch keys and values, on the host of `url` (SGLang:
    `--disaggregation-bootstrap-port`)."""
    kv_events: str = ""
    """ZeroMQ endpoint on which the replica publishes KV events, such as `tcp://host:5557`. Empty: none."""
    kv_events_replay: str = ""
    """ZeroMQ endpoint that resends KV events that the router has missed."""


class KvObjective(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The longest time for which a file's cached prompt should stay for the file's next request."""

    within_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0
    """Longest time in seconds between two requests of one file for which the objective applies."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95
    """Share of such requests that should find everything that both prompts have in common in the cache. Only alerts use
    it."""


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Interchangeable replicas that speak one dialect."""

    name: str
    """Name by which models refer to the pool. It must be unique."""
    driver: str
    """API dialect of the pool's engines: `embedded` (`slipstream engine`), `sglang`, `tensorrt_llm` (`trtllm-serve`,
    chat only), `vllm` (`vllm serve`), `llama_cpp` (`llama-server`), or `openai` for any other engine."""
    replicas: tuple[Replica, ...] = ()
    """The pool's engines."""
    max_concurrency: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Maximum number of concurrent requests at one replica; the router queues further ones. 0: the concurrency that the
    replica reports. If it reports neither that nor its memory, the router learns a limit (`router.concurrency`)."""
    api_key_file: str = ""
    """Absolute path of a file with the engines' own API key. Gateways, router and worker must be able to read it, and
    read it again when it changes. If neither this nor `api_key_env` is set, the engines receive the deployment's token;
    from router and worker, embedded engines receive only the metrics token."""
    api_key_env: str = ""
    """Name of the environment variable that holds the engines' own API key, in capitals. Gateways, router and worker
    read it."""
    api_key_required: bool = True
    """Whether the engines require an API key. If false, none is sent."""
    continuous_usage_stats: bool = False
    """Whether the engines report the usage so far with every event if `stream_options.continuous_usage_stats` is set. A
    client that leaves is then billed by the engine's own count; otherwise the gateway counts the delivered tokens.
    Driver `openai` only; all others except `llama_cpp` always do this."""
    cache_salt: bool = False
    """Whether the engines separate prefix caches by the request's `cache_salt`. If not, tenants share their caches:
    `cached_tokens` is then hidden and every prompt token costs the full price, so that no tenant can learn or gain from
    the requests of others. Driver `openai` only; all others except `llama_cpp` always do this."""
    max_completion_tokens: bool = False
    """Whether the token limit of a chat response is sent as `max_completion_tokens`, because OpenAI's reasoning models
    refuse `max_tokens`. Otherwise it is sent as `max_tokens`, the only name that other engines know. Driver `openai`
    only."""
    max_adapters: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """Maximum number of LoRA adapters loaded at one replica at a time. The engine also has a limit (embedded:
    `engine.lora.max_loaded`; SGLang: `--max-loaded-loras`; vLLM: `--max-cpu-loras`). 0: requests with an adapter are
    refused. Drivers `embedded`, `sglang` and `vllm`."""
    request_priorities: bool = False
    """Whether the engines order waiting requests by their `priority`, as version 1.3 and later do with
    `scheduler_config.waiting_queue_policy: priority`. Earlier versions refuse a request that has a priority. Driver
    `tensorrt_llm` only."""
    abort_by_id: bool = False
    """Whether the engines were started with `--enable-scale-out`, so that the gateway can stop a request by its id. A
    client that leaves is then billed by an exact count; otherwise the gateway closes the connection and bills the last
    reported count. Driver `vllm` only."""
    engine_parameters: tuple[str, ...] = ()
    """Additional parameters that clients may send, under the engines' own names; each is passed on unchanged. The
    parameters that docs/guides/real-engines.md lists for the driver need no entry here. A parameter that the gateway
    sets itself, such as `priority` or `cache_salt`, is refused."""
    kv_objective: KvObjective = KvObjective()
    """How long the prompts of files under edit should stay in the engines' prefix caches."""
    speculation: SpeculationRule = SpeculationRule()
    """When the pool's engines draft tokens ahead: always, or only at low load."""
    price_per_replica_hour: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0
    """Hourly cost of one replica, in `gateway.admin.currency`, with up to six decimals; 0 if unknown. Only the cost of
    a million good tokens uses it."""
    hardware: str = ""
    """Hardware of the pool's replicas as reports show it, such as `H100`. A replica's own setting takes precedence."""
    tensor_parallel: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Number of GPUs per replica, for reports and `slipstream tools engines render`. 0: not set. Reports then assume
    one GPU, and `render` uses the fewest that hold the model and meet its objectives."""
    role: Role = "unified"
    """`prefill` and `decode` are the two halves of pairs that serve a request together (driver `sglang` only). A model
    names the decode pool as its `pool`."""
    prefill_pool: str = ""
    """For a decode pool, the pool whose replicas compute its prompts. A prefill pool serves only one decode pool."""
    split_pool: str = ""
    """For a unified pool, the decode pool of a pair that takes over requests whose prompts would delay the pool's
    streams for longer than the transfer of their keys and values takes. Empty: the pool serves all its requests itself.
    """

    def hardware_of(self, replica: Replica | None = None) -> str:
        """The hardware of a replica, or of each replica without its own: `H100`, `2 × H100`; empty if unknown."""
        if replica is not None and replica.hardware:
            return replica.hardware
        count = f"{self.tensor_parallel} × " if self.tensor_parallel > 1 and self.hardware else ""
        return f"{count}{self.hardware}"

    def check_names(self) -> None:
        """Raise ConfigError for a pool's or replica's name that is unprintable or unfit for a path of the admin API."""
        for field, name in (
            (f"pools.{self.name}.name", self.name),
            *((f"pools.{self.name}.replicas.{replica.id}.id", replica.id) for replica in self.replicas),
        ):
            if not is_path_segment(name):
                raise ConfigError(f"{field}: {name!r}; {NO_PATH_SEGMENT}", param=field)
            if not name.isprintable():
                # the name appears in logs, and as a comment in the scripts of `slipstream tools engines render`
                raise ConfigError(
                    f"pools: the name {name!r} of a pool or replica has an unprintable character; use printable "
                    "characters only",
                    param="pools",
                )

    def check_role(self) -> None:
        """Raise ConfigError if the pool's role, driver and replicas do not fit together."""
        field = f"pools.{self.name}"
        if self.role != "unified" and self.driver not in PAIR_DRIVERS:
            raise ConfigError(
                f"{field}.role: {self.role!r} needs driver {' or '.join(sorted(PAIR_DRIVERS))}, not {self.driver!r}",
                param=f"{field}.role",
            )
        if self.role != "unified" and self.max_adapters:
            raise ConfigError(
                f"{field}.max_adapters: {self.max_adapters}; prefill/decode pairs do not support adapters, so set it "
                "to 0",
                param=f"{field}.max_adapters",
            )
        if (self.role == "decode") != bool(self.prefill_pool):
            what = (
                "name the pool that computes its prompts"
                if self.role == "decode"
                else "only a decode pool has a prefill pool; remove it"
            )
            raise ConfigError(f"{field}.prefill_pool: {self.prefill_pool!r}; {what}", param=f"{field}.prefill_pool")
        if self.split_pool and self.role != "unified":
            raise ConfigError(
                f"{field}.split_pool: {self.split_pool!r}; only a unified pool has a split pool, and this pool has "
                f"the role {self.role!r}; remove it",
                param=f"{field}.split_pool",
            )
        for replica in self.replicas:
            if (self.role == "prefill") != bool(replica.bootstrap_port):
                what = "it must be 1 to 65535 for each replica of a prefill pool, and 0 for others"
                name = f"{field}.replicas.{replica.id}.bootstrap_port"
                raise ConfigError(f"{name}: {replica.bootstrap_port}; {what}", param=name)

    def check_alike(self, other: Pool) -> None:
        """Raise ConfigError unless `other`, a pool that gets the same requests, passes the same engine parameters."""
        field = f"pools.{other.name}.engine_parameters"
        if different := set(self.engine_parameters) ^ set(other.engine_parameters):
            raise ConfigError(
                f"{field}: {min(different)!r} is in the list of only one of {self.name!r} and {other.name!r}, which "
                "get the same requests; name the same parameters in both",
                param=field,
            )

    def check_speculation(self) -> None:
        """Raise ConfigError when drafting cannot be governed as configured."""
        field = f"pools.{self.name}.speculation"
        self.speculation.check(field, self.driver, self.role, [replica.speculation for replica in self.replicas])

    def check_api_key(self) -> None:
        """Raise ConfigError when the key's source is missing or ambiguous. The message never repeats a value that may
        be a key."""
        field = f"pools.{self.name}"
        if bool(self.api_key_file) + bool(self.api_key_env) + (not self.api_key_required) > 1:
            raise ConfigError(
                f"{field}: give one of api_key_file, api_key_env and api_key_required = false, not several", param=field
            )
        if self.api_key_file and not self.api_key_file.startswith("/"):
            raise ConfigError(
                f"{field}.api_key_file: must be the absolute path of a file that holds the key, not the key itself",
                param=f"{field}.api_key_file",
            )
        if self.api_key_env and (
            not _VARIABLE.fullmatch(self.api_key_env) or self.api_key_env.startswith("SLIPSTREAM_")
        ):
            raise ConfigError(
                f"{field}.api_key_env: must be the name of an environment variable that holds the key (capitals, "
                "digits and _, not beginning with SLIPSTREAM_), not the key itself",
                param=f"{field}.api_key_env",
            )


NO_PATH_SEGMENT = (
    "the name of a pool or replica is part of paths of the admin API, so it must not contain '/' or be '.' or '..'. "
    "Choose another name, such as one with '-'."
)
"""Error text for a name that is not `is_path_segment`."""


def is_path_segment(name: str) -> bool:
    """Whether a URL path can carry the name as one segment."""
    return "/" not in name and name not in {".", ".."}


class DesiredState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One version of the desired state."""

    version: int
    models: tuple[Model, ...] = ()
    pools: tuple[Pool, ...] = ()

    def model(self, name: str) -> Model | None:
        """The model with this name or alias, or None."""
        for model in self.models:
            if name == model.name or name in model.aliases:
                return model
        return None

    def pool(self, name: str) -> Pool | None:
        """The pool with this name, or None."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        return None

    @property
    def adapted_models(self) -> frozenset[str]:
        """Names of the models for which some engines take LoRA adapters."""
        taking = {pool.name for pool in self.pools if pool.max_adapters}
        return frozenset(model.name for model in self.models if not taking.isdisjoint(model.answering_pools))

    def check(self) -> None:
        """Raise ConfigError if names clash or refer to nothing, or if pools and models contradict each other."""
        _require_unique("models", [n for model in self.models for n in (model.name, *model.aliases)])
        _require_unique("pools", [pool.name for pool in self.pools])
        _require_unique("replicas", [replica.id for pool in self.pools for replica in pool.replicas])
        for name in (n for model in self.models for n in (model.name, *model.aliases) if n in RESERVED_NAMES):
            raise ConfigError(
                f"models.{name}: no model or alias may have this name: `all` lifts a restriction to models, and `.` "
                "and `..` are parts of paths; choose another",
                param="models",
            )
        for pool in self.pools:
            pool.check_api_key()
            pool.check_speculation()
            check_passed(pool.engine_parameters, f"pools.{pool.name}.engine_parameters")
        self._check_kv_events()
        self._check_pairs()
        self._check_splits()
        for model in self.models:
            check_variables(model.chat_template_kwargs, f"models.{model.name}.chat_template_kwargs")
            self._require_serving_pool(f"models.{model.name}.pool", model.pool)
            if model.canary is not None:
                self._require_serving_pool(f"models.{model.name}.canary.pool", model.canary.pool)
                if model.canary.control_pool:
                    self._require_serving_pool(f"models.{model.name}.canary.control_pool", model.canary.control_pool)
            if model.cascade is not None:
                self._check_cascade(model, model.cascade)
            if model.task is not Task.TEXT and model.canary is not None:
                raise ConfigError(
                    f"models.{model.name}.canary: models with the task {model.task.value!r} cannot have a canary; "
                    "remove it",
                    param=f"models.{model.name}.canary",
                )

    def _check_kv_events(self) -> None:
        """Require a separate endpoint for each engine: with a shared one, the router would believe that both engines
        hold the blocks."""
        urls: dict[str, str] = {}
        for pool in self.pools:
            for replica in pool.replicas:
                if replica.kv_events and urls.setdefault(replica.kv_events, replica.url) != replica.url:
                    field = f"pools.{pool.name}.replicas.{replica.id}.kv_events"
                    raise ConfigError(
                        f"{field}: {replica.kv_events} is already the endpoint of the KV events of engine "
                        f"{urls[replica.kv_events]}; give each engine an endpoint of its own",
                        param=field,
                    )

    def _check_pairs(self) -> None:
        taken: dict[str, str] = {}
        for pool in self.pools:
            pool.check_role()
            if pool.role != "decode":
                continue
            field = f"pools.{pool.name}.prefill_pool"
            self._require_pool(field, pool.prefill_pool)
            prefill = self.pool(pool.prefill_pool)
            if prefill is None or prefill.role != "prefill":
                raise ConfigError(
                    f"{field}: {pool.prefill_pool!r} does not have the role 'prefill'; set its role, or name another "
                    "pool",
                    param=field,
                )
            if (other := taken.setdefault(prefill.name, pool.name)) != pool.name:
                raise ConfigError(
                    f"{field}: {prefill.name!r} already computes the prompts of {other!r}; give each decode pool a "
                    "prefill pool of its own",
                    param=field,
                )
            pool.check_alike(prefill)

    def _check_splits(self) -> None:
        taken: dict[str, str] = {}
        for pool in self.pools:
            if not pool.split_pool:
                continue
            field = f"pools.{pool.name}.split_pool"
            self._require_pool(field, pool.split_pool)
            decode = self.pool(pool.split_pool)
            if decode is None or decode.role != "decode":
                raise ConfigError(
                    f"{field}: {pool.split_pool!r} does not have the role 'decode'; name the decode pool of a pair",
                    param=field,
                )
            if decode.driver != pool.driver:
                raise ConfigError(
                    f"{field}: {pool.split_pool!r} has driver {decode.driver!r} and {pool.name!r} {pool.driver!r}; "
                    "both pools of a split need the same driver",
                    param=field,
                )
            if (other := taken.setdefault(decode.name, pool.name)) != pool.name:
                raise ConfigError(
                    f"{field}: {decode.name!r} already takes requests of {other!r}; give each pool its own pair",
                    param=field,
                )
            pool.check_alike(decode)

    def _require_serving_pool(self, field: str, name: str) -> None:
        """Require a pool that answers requests, which a prefill pool does not."""
        self._require_pool(field, name)
        pool = self.pool(name)
        if pool is not None and pool.role == "prefill":
            raise ConfigError(f"{field}: {name!r} computes prompts only; name its decode pool", param=field)

    def _check_cascade(self, model: Model, cascade: Cascade) -> None:
        field = f"models.{model.name}.cascade.first"
        first = next((one for one in self.models if one.name == cascade.first), None)
        if first is None or first is model:
            others = ", ".join(one.name for one in self.models if one is not model) or "none"
            raise ConfigError(
                f"{field}: {cascade.first!r} is not the name of another model; models: {others}", param=field
            )
        if model.task is not Task.TEXT or first.task is not Task.TEXT:
            raise ConfigError(f"{field}: both models of a cascade must have the task {Task.TEXT.value!r}", param=field)
        if model.tier is not Tier.CHAT or first.tier is not Tier.CHAT:
            raise ConfigError(f"{field}: both models of a cascade must have the tier {Tier.CHAT.value!r}", param=field)
        if first.cascade is not None:
            raise ConfigError(f"{field}: {first.name!r} has a cascade itself; name a model without one", param=field)

    def _require_pool(self, field: str, name: str) -> None:
        if self.pool(name) is None:
            known = ", ".join(pool.name for pool in self.pools) or "none"
            raise ConfigError(f"{field}: no pool named {name!r}; pools: {known}")


def _require_unique(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"{what}: the name {name!r} is used twice; names and aliases must be unique")
        seen.add(name)
