"""What the fleet should be: models, pools and replicas, as one versioned document.

Stored as a row per version, seeded from the settings file, handed by gateways to the router, which keeps the highest.
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
from contracts.speculation import SpeculationRule

Role = Literal["unified", "prefill", "decode"]
"""What a pool's engines do of a request: all of it, its prompt, or its answer."""
PAIR_DRIVERS = frozenset({"sglang"})
"""Dialects whose engines can share a request."""

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


class Canary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A second pool that takes a share of a model's sessions, for a change that is to be tried on a few first."""

    pool: str
    """The pool that serves the canary."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    """Part of the sessions that go there. A session keeps its side while the share only grows."""
    engine_model: str | None = None
    """The name that pool serves the model under, when it differs from the model's."""
    control: bool = False
    """An equal share of the sessions is the control arm: served as the baseline is, with caches as fresh as the
    canary's, so that the two can be compared."""
    control_pool: str = ""
    """The pool of the control arm: fresh replicas of what the model's pool runs. Empty: the model's pool, where a cache
    salt of its own keeps the arm from finding what the others left in the caches."""
    shadow_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Part of the requests that are copied to `pool` as well; nobody is given or billed what it answers."""
    release: str = ""
    """The release that made this split, ends it, and is told apart by it in traces; empty: nobody's."""
    salt: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[0-9A-Za-z]*$")] = ""
    """Secret that draws the sides: who has it can compute which of his sessions go where. A release draws its own.
    Empty: none, so that a tenant who knows the other fields can choose; enough where nothing is judged by it."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model as clients see it."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """What clients write as `model`; no other model or alias may have it."""
    tier: Tier
    """`chat` serves `/v1/chat/completions`, `autocomplete` serves `/v1/completions` with fill-in-the-middle; limits,
    promises and deadlines go by it."""
    pool: str
    """The pool whose replicas serve it."""
    context_tokens: Annotated[int, msgspec.Meta(ge=1)]
    """Longest prompt and answer together."""
    aliases: tuple[str, ...] = ()
    """Other names clients may use."""
    description: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """A sentence on the model and its use; `/v1/models` and the playground show it."""
    tokenizer: str | None = None
    """Folder with tokenizer.json (and a chat template), or a GGUF file, so that prompts are counted and encoded
    exactly. Without it counts are estimates, and fill-in-the-middle is sent as text."""
    engine_model: str | None = None
    """The name the engines serve it under, when it differs from `name`."""
    default_max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 512
    """Output limit when the client gives none; always cut to what the context leaves."""
    chat_template_kwargs: dict[str, TemplateValue] = {}
    """Variables for its chat template where a request does not set them: `{ enable_thinking = false }` switches the
    thinking of Qwen 3 off. Its engines have to take `chat_template_kwargs` (all drivers but `openai`)."""
    fim: FillInTheMiddle = FillInTheMiddle()
    """How its gaps are laid out, filled and ended."""
    canary: Canary | None = None
    """Where some of its sessions go instead of `pool`."""
    cascade: Cascade | None = None
    """A small model that answers some of its requests first; none unless it is asked for."""

    @property
    def answering_pools(self) -> tuple[str, ...]:
        """The pools that a request for it may be given to, its own first."""
        split = () if self.canary is None else (self.canary.pool, self.canary.control_pool)
        return tuple(dict.fromkeys(name for name in (self.pool, *split) if name))


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine process (or one load-balanced address)."""

    id: str
    """Its name in `slipstream fleet`, metrics and traces; no other replica of any pool may have it."""
    url: str
    """`http(s)://host[:port][/path]`: what stands before `/v1/…`."""
    weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Share of load relative to the pool's other replicas; 0 drains it."""
    hardware: str = ""
    """What it runs on, for people and reports: `H200x2`. Empty: as its pool says."""
    speed: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Prefill speed relative to the pool's other replicas, until its own reports have told."""
    context_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Longest prompt and answer it takes together; 0: the model's."""
    speculation: bool = False
    """It was started with speculative decoding."""
    bootstrap_port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """Of a prefill engine: where decode engines fetch what it computed (SGLang: `--disaggregation-bootstrap-port`, on
    the host of `url`)."""
    kv_events: str = ""
    """ZeroMQ endpoint on which it publishes KV events (`tcp://host:5557`); empty: none."""
    kv_events_replay: str = ""
    """ZeroMQ endpoint that repeats KV events the subscriber missed."""


class KvObjective(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long what an engine has computed of a file shall be there for the file's next request."""

    within_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0
    """Seconds between two requests of one file, up to which the objective holds."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95
    """Part of them that shall find all that both prompts share. It is for alerts; nothing is decided by it."""


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Interchangeable replicas that speak one dialect."""

    name: str
    """What models name as their `pool`; no other pool may have it."""
    driver: str
    """The dialect its engines speak: `embedded` (`slipstream engine`), `sglang`, `tensorrt_llm` (`trtllm-serve`, chat
    only), `vllm` (`vllm serve`), or `openai` for all others."""
    replicas: tuple[Replica, ...] = ()
    """The engines."""
    max_concurrency: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Requests that a replica is given at a time at most, before the router queues. 0: as many as it reports to run;
    where it reports neither that nor its memory, as many as is learnt of it (`router.concurrency`)."""
    api_key_file: str = ""
    """File with the engines' own API key: an absolute path, readable where gateways, router and worker run, and read
    again when it changes. With neither it nor `api_key_env` the engines are sent the deployment's token; embedded ones
    by router and worker only the metrics token."""
    api_key_env: str = ""
    """Environment variable with the engines' own API key, in capitals; of gateways, router and worker."""
    api_key_required: bool = True
    """false: the engines take no API key, and none is sent."""
    continuous_usage_stats: bool = False
    """Driver `openai` only; the others always have it. The engines tell with every event what was used so far, asked by
    `stream_options.continuous_usage_stats`: a client that leaves is then billed the engine's own count.
    Without it the gateway counts what it delivered."""
    cache_salt: bool = False
    """Driver `openai` only; the others always have it. The engines keep prefix caches apart by the request's
    `cache_salt`. Without it tenants share their caches: `cached_tokens` is then hidden and every prompt
    token costs the full price, so that nobody can learn or gain from what others have sent."""
    max_completion_tokens: bool = False
    """Driver `openai` only. The most tokens of a chat answer are sent as `max_completion_tokens`: OpenAI's reasoning
    models refuse `max_tokens`, which is sent otherwise, for others know no second name of it."""
    max_adapters: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """LoRA adapters that a replica is given at a time at most, and no more than its engine takes (embedded:
    `engine.lora.max_loaded`; SGLang: `--max-loaded-loras`; vLLM: `--max-cpu-loras`). 0: requests with an adapter are
    refused. Drivers `embedded`, `sglang` and `vllm`."""
    request_priorities: bool = False
    """Driver `tensorrt_llm` only. The engines order what waits by a request's `priority`: version 1.3 and later, with
    `scheduler_config.waiting_queue_policy: priority`. Others refuse a request that has one."""
    abort_by_id: bool = False
    """Driver `vllm` only. The engines are started with `--enable-scale-out` and stop a request by its id: a client that
    leaves is then billed an exact count. Without it the connection is closed, and the last count told is billed."""
    engine_parameters: tuple[str, ...] = ()
    """Further parameters that clients may send, by the engines' own names; each is passed as it is. Those of
    docs/guides/real-engines.md are passed without it, by driver. A parameter that the gateway sets itself, such as
    `priority` or `cache_salt`, is refused here."""
    kv_objective: KvObjective = KvObjective()
    """How long files that are being edited shall stay in its engines' prefix caches."""
    speculation: SpeculationRule = SpeculationRule()
    """When its engines draft tokens ahead: at low load only, where it is governed."""
    price_per_replica_hour: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0
    """What one of its replicas costs an hour, in `gateway.admin.currency`, to a millionth; 0: not known. Only for
    telling what a million good tokens cost."""
    hardware: str = ""
    """What its replicas run on, for people and reports: `H100`. A replica's own goes before it."""
    tensor_parallel: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Cards that each of its replicas is spread over, for reports and `slipstream engines render`. 0: not said; reports
    take one, and what is rendered the fewest that hold the model and keep its promise."""
    role: Role = "unified"
    """`prefill` or `decode`: half of the pairs that serve a request together, `sglang` only. Models name the decode
    pool."""
    prefill_pool: str = ""
    """Of a decode pool: the pool whose replicas compute its prompts; it serves no other."""
    split_pool: str = ""
    """Of a unified pool: the decode pool of a pair that takes those of its requests whose prompts would hold its
    streams up for longer than moving their keys and values takes. Empty: all are served whole."""

    def hardware_of(self, replica: Replica | None = None) -> str:
        """What a replica, or each that does not say it itself, runs on: `H100`, `2 × H100`; empty: nobody has said."""
        if replica is not None and replica.hardware:
            return replica.hardware
        cards = f"{self.tensor_parallel} × " if self.tensor_parallel > 1 and self.hardware else ""
        return f"{cards}{self.hardware}"

    def check_names(self) -> None:
        """Raise ConfigError for a name that no path of the admin API can carry: its own, or a replica's."""
        for field, name in (
            (f"pools.{self.name}.name", self.name),
            *((f"pools.{self.name}.replicas.{replica.id}.id", replica.id) for replica in self.replicas),
        ):
            if not is_path_segment(name):
                raise ConfigError(f"{field}: {name!r}; {NO_PATH_SEGMENT}", param=field)
            if not name.isprintable():
                # it stands in logs, and as a comment in the scripts of `slipstream engines render`
                raise ConfigError(f"pools: {name!r} names a pool or replica: printable characters only", param="pools")

    def check_role(self) -> None:
        """Raise ConfigError when its role, driver and replicas do not go together."""
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
        """Raise ConfigError unless another pool, which is given the same requests, passes the same parameters."""
        field = f"pools.{other.name}.engine_parameters"
        if different := set(self.engine_parameters) ^ set(other.engine_parameters):
            raise ConfigError(
                f"{field}: {min(different)!r} is in one list of {self.name!r} and {other.name!r} alone, and both are "
                "given the same requests; name the same parameters in both",
                param=field,
            )

    def check_speculation(self) -> None:
        """Raise ConfigError when drafting cannot be governed as it says."""
        field = f"pools.{self.name}.speculation"
        self.speculation.check(field, self.driver, self.role, [replica.speculation for replica in self.replicas])

    def check_api_key(self) -> None:
        """Raise ConfigError when it is not said where the key is, or said twice. Never repeats what may be a key."""
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
    "the name of a pool or replica has no '/', since no path of the admin API could tell where it ends. "
    "Write '-' instead."
)
"""What is said of a name that is not `is_path_segment`."""


def is_path_segment(name: str) -> bool:
    """Whether a path can name it beside other things."""
    return "/" not in name and name not in {".", ".."}


class DesiredState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One version of the whole."""

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
        """Names of the models that some of their engines take LoRA adapters of."""
        taking = {pool.name for pool in self.pools if pool.max_adapters}
        return frozenset(model.name for model in self.models if not taking.isdisjoint(model.answering_pools))

    def check(self) -> None:
        """Raise ConfigError when names clash or point nowhere."""
        _require_unique("models", [n for model in self.models for n in (model.name, *model.aliases)])
        _require_unique("pools", [pool.name for pool in self.pools])
        _require_unique("replicas", [replica.id for pool in self.pools for replica in pool.replicas])
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

    def _check_kv_events(self) -> None:
        """Each engine tells its own: of another's the router would believe that both hold them."""
        urls: dict[str, str] = {}
        for pool in self.pools:
            for replica in pool.replicas:
                if replica.kv_events and urls.setdefault(replica.kv_events, replica.url) != replica.url:
                    field = f"pools.{pool.name}.replicas.{replica.id}.kv_events"
                    raise ConfigError(
                        f"{field}: {replica.kv_events} is where the engine {urls[replica.kv_events]} tells its KV "
                        "events; give each engine an endpoint of its own",
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
                    f"{field}: {pool.prefill_pool!r} has not the role 'prefill'; give it, or name one that has",
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
                    f"{field}: {pool.split_pool!r} has not the role 'decode'; name the decode pool of a pair",
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
        """One that answers requests: a prefill pool does not."""
        self._require_pool(field, name)
        pool = self.pool(name)
        if pool is not None and pool.role == "prefill":
            raise ConfigError(f"{field}: {name!r} computes prompts only; name its decode pool", param=field)

    def _check_cascade(self, model: Model, cascade: Cascade) -> None:
        field = f"models.{model.name}.cascade.first"
        first = next((one for one in self.models if one.name == cascade.first), None)
        if first is None or first is model:
            others = ", ".join(one.name for one in self.models if one is not model) or "none"
            raise ConfigError(f"{field}: {cascade.first!r} is no other model's name; models: {others}", param=field)
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
