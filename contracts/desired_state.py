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
"""The part of a request that a pool's engines compute: all of it, its prompt, or its response."""
RESERVED_NAMES = frozenset({"all", ".", ".."})
"""Names that no model or alias may have."""
PAIR_DRIVERS = frozenset({"sglang"})
"""Drivers whose engines can share a request."""

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


class Canary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A second pool that takes a share of a model's sessions, for a change that is to be tried on a few first."""

    pool: str
    """The pool that serves the canary."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    """Share of the sessions that go there. A session keeps its side while the share only grows."""
    engine_model: str | None = None
    """The name that pool serves the model under, when it differs from the model's."""
    control: bool = False
    """An equal share of the sessions is the control arm: served like the baseline, with caches as fresh as the
    canary's, so that the two can be compared."""
    control_pool: str = ""
    """The pool of the control arm: fresh replicas that run the same as the model's pool. Empty: the model's pool, where
    a cache salt of its own keeps the arm from using cached prompts of the others."""
    shadow_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of the requests that are copied to `pool` as well; the copies' responses are neither delivered nor
    billed."""
    release: str = ""
    """The release that made this split, ends it, and identifies it in traces; empty: none."""
    salt: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[0-9A-Za-z]*$")] = ""
    """Secret that decides the sides: a client that has it can compute the side of each session. A release draws its
    own. Empty: none, so that a tenant who knows the other fields can choose; enough where no release is judged by the
    split."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model as clients see it."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The name that clients write as `model`; no other model or alias may have it."""
    tier: Tier
    """`chat` serves `/v1/chat/completions`, `autocomplete` serves `/v1/completions` with fill-in-the-middle; it decides
    limits, promises and deadlines."""
    pool: str
    """The pool whose replicas serve it."""
    context_tokens: Annotated[int, msgspec.Meta(ge=1)]
    """Longest prompt and response together."""
    aliases: tuple[str, ...] = ()
    """Other names clients may use."""
    task: Task = Task.TEXT
    """`text` generates text. `embedding` serves `/v1/embeddings` alone, `rerank` serves `/v1/rerank` and `/v1/score`
    alone: drivers `sglang`, `vllm`, `openai` and `llama_cpp`, and for embeddings `embedded`."""
    description: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """A sentence on the model and its use; `/v1/models` and the playground show it."""
    tokenizer: str | None = None
    """Folder with tokenizer.json (and a chat template), or a GGUF file, so that prompts are counted and encoded
    exactly. Without it counts are estimates, and fill-in-the-middle is sent as text."""
    engine_model: str | None = None
    """The name the engines serve it under, when it differs from `name`."""
    default_max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 512
    """Output limit when the client sends none; always cut to the rest of the context."""
    chat_template_kwargs: dict[str, TemplateValue] = {}
    """Variables for its chat template where a request does not set them: `{ enable_thinking = false }` switches the
    thinking of Qwen 3 off. Its engines have to take `chat_template_kwargs` (all drivers but `openai`)."""
    fim: FillInTheMiddle = FillInTheMiddle()
    """Layout, filling and end of its fill-in-the-middle gaps."""
    canary: Canary | None = None
    """The pool that some of its sessions go to instead of `pool`."""
    cascade: Cascade | None = None
    """A small model that answers some of its requests first; none by default."""

    @property
    def answering_pools(self) -> tuple[str, ...]:
        """The pools that may serve a request for it, its own first."""
        split = () if self.canary is None else (self.canary.pool, self.canary.control_pool)
        return tuple(dict.fromkeys(name for name in (self.pool, *split) if name))


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine process (or one load-balanced address)."""

    id: str
    """Its name in `slipstream fleet`, metrics and traces; no other replica of any pool may have it."""
    url: str
    """`http(s)://host[:port][/path]`: the part before `/v1/…`."""
    weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Share of load relative to the pool's other replicas; 0 drains it."""
    hardware: str = ""
    """Its hardware, for people and reports: `H200x2`. Empty: that of its pool."""
    speed: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Prefill speed relative to the pool's other replicas, used until its own reports are known."""
    context_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Longest prompt and response together; 0: the model's limit."""
    speculation: bool = False
    """It was started with speculative decoding."""
    bootstrap_port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """Port of a prefill engine from which decode engines fetch its keys and values (SGLang:
    `--disaggregation-bootstrap-port`, on the host of `url`)."""
    kv_events: str = ""
    """ZeroMQ endpoint on which it publishes KV events (`tcp://host:5557`); empty: none."""
    kv_events_replay: str = ""
    """ZeroMQ endpoint that repeats KV events the subscriber missed."""


class KvObjective(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The longest time for which a file's cached prompt should stay for the file's next request."""

    within_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0
    """Longest time in seconds between two requests of one file for which the objective holds."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95
    """Share of such requests that should find everything that both prompts share in the cache. It serves alerts;
    nothing is decided by it."""


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Interchangeable replicas that speak one dialect."""

    name: str
    """The name that models refer to as their `pool`; no other pool may have it."""
    driver: str
    """The dialect its engines speak: `embedded` (`slipstream engine`), `sglang`, `tensorrt_llm` (`trtllm-serve`, chat
    only), `vllm` (`vllm serve`), `llama_cpp` (`llama-server`), or `openai` for any other."""
    replicas: tuple[Replica, ...] = ()
    """The engines."""
    max_concurrency: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Most requests that a replica is given at a time, before the router queues. 0: the concurrency that it reports;
    where it reports neither that nor its memory, the router learns one (`router.concurrency`)."""
    api_key_file: str = ""
    """File with the engines' own API key: an absolute path, readable where gateways, router and worker run, and read
    again when it changes. With neither this nor `api_key_env`, the engines receive the deployment's token; from router
    and worker, embedded engines receive only the metrics token."""
    api_key_env: str = ""
    """Environment variable of gateways, router and worker with the engines' own API key; capitals."""
    api_key_required: bool = True
    """false: the engines require no API key, and none is sent."""
    continuous_usage_stats: bool = False
    """Driver `openai` only; the others but `llama_cpp` always have it. The engines report the usage so far with every
    event, on `stream_options.continuous_usage_stats`: a client that leaves is then billed by the engine's own count.
    Without it the gateway counts the delivered tokens."""
    cache_salt: bool = False
    """Driver `openai` only; the others but `llama_cpp` always have it. The engines separate prefix caches by the
    request's `cache_salt`. Without it tenants share their caches: `cached_tokens` is then hidden and every prompt token
    costs the full price, so that no tenant can learn or gain from the requests of others."""
    max_completion_tokens: bool = False
    """Driver `openai` only. The token limit of a chat response is sent as `max_completion_tokens`, because OpenAI's
    reasoning models refuse `max_tokens`. Otherwise it is sent as `max_tokens`, the only name that other engines
    know."""
    max_adapters: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """Most LoRA adapters that a replica is given at a time; its engine has a limit as well (embedded:
    `engine.lora.max_loaded`; SGLang: `--max-loaded-loras`; vLLM: `--max-cpu-loras`). 0: requests with an adapter are
    refused. Drivers `embedded`, `sglang` and `vllm`."""
    request_priorities: bool = False
    """Driver `tensorrt_llm` only. The engines order waiting requests by a request's `priority`: version 1.3 and later,
    with `scheduler_config.waiting_queue_policy: priority`. Other versions refuse a request that has one."""
    abort_by_id: bool = False
    """Driver `vllm` only. The engines are started with `--enable-scale-out` and stop a request by its id: a client that
    leaves is then billed by an exact count. Without it the connection is closed, and the last reported count is
    billed."""
    engine_parameters: tuple[str, ...] = ()
    """Further parameters that clients may send, by the engines' own names; each is passed as it is. Those of
    docs/guides/real-engines.md are passed without it, by driver. A parameter that the gateway sets itself, such as
    `priority` or `cache_salt`, is refused here."""
    kv_objective: KvObjective = KvObjective()
    """The time for which the prompts of files under edit should stay in its engines' prefix caches."""
    speculation: SpeculationRule = SpeculationRule()
    """When its engines draft tokens ahead: always, or only at low load."""
    price_per_replica_hour: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0
    """Cost of one replica per hour, in `gateway.admin.currency`, to a millionth; 0: unknown. Used only to compute the
    cost of a million good tokens."""
    hardware: str = ""
    """Hardware of its replicas, for people and reports: `H100`. A replica's own setting takes precedence."""
    tensor_parallel: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """GPUs that each of its replicas spans, for reports and `slipstream tools engines render`. 0: not set; reports
    assume
    one, and rendering takes the fewest that hold the model and keep its promise."""
    role: Role = "unified"
    """`prefill` or `decode`: half of the pairs that serve a request together, `sglang` only. Models name the decode
    pool."""
    prefill_pool: str = ""
    """For a decode pool: the pool whose replicas compute its prompts; it serves no other."""
    split_pool: str = ""
    """For a unified pool: the decode pool of a pair that takes those of its requests whose prompts would delay its
    streams for longer than a transfer of their keys and values takes. Empty: all are served whole."""

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
                raise ConfigError(f"pools: {name!r} names a pool or replica: printable characters only", param="pools")

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
                f"{field}.max_adapters: {self.max_adapters}; pairs take no adapters, leave it 0",
                param=f"{field}.max_adapters",
            )
        if (self.role == "decode") != bool(self.prefill_pool):
            what = "name the pool that computes its prompts" if self.role == "decode" else "only a decode pool has one"
            raise ConfigError(f"{field}.prefill_pool: {self.prefill_pool!r}; {what}", param=f"{field}.prefill_pool")
        if self.split_pool and self.role != "unified":
            raise ConfigError(
                f"{field}.split_pool: {self.split_pool!r}; only a unified pool has one, not one with the role "
                f"{self.role!r}",
                param=f"{field}.split_pool",
            )
        for replica in self.replicas:
            if (self.role == "prefill") != bool(replica.bootstrap_port):
                what = "1 to 65535 for each replica of a prefill pool, 0 for others"
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
    "the name of a pool or replica has no '/', since a path of the admin API could not show where it ends. "
    "Write '-' instead."
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
                    f"models.{model.name}.canary: a model of the task {model.task.value!r} has none; leave it out",
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
                    f"{field}: {pool.prefill_pool!r} does not have the role 'prefill'; set it, or name another pool",
                    param=field,
                )
            if (other := taken.setdefault(prefill.name, pool.name)) != pool.name:
                raise ConfigError(
                    f"{field}: {prefill.name!r} computes the prompts of {other!r} already; "
                    "give each decode pool a prefill pool of its own",
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
                    "both sides of a split speak one dialect",
                    param=field,
                )
            if (other := taken.setdefault(decode.name, pool.name)) != pool.name:
                raise ConfigError(
                    f"{field}: {decode.name!r} shares the requests of {other!r} already; give each pool a pair of its "
                    "own",
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
            raise ConfigError(f"{field}: both models of a cascade are of the task {Task.TEXT.value!r}", param=field)
        if model.tier is not Tier.CHAT or first.tier is not Tier.CHAT:
            raise ConfigError(f"{field}: both models of a cascade are of the tier {Tier.CHAT.value!r}", param=field)
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
