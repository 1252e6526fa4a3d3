"""Maps a `model_list` to models, pools and prices. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from contracts.pooling import Task
from slipstream.litellm_import.plan import Notes, PlannedModel, PlannedPrice

ENVIRONMENT = "os.environ/"
ASSUMED_CONTEXT_TOKENS = 8_192
OPENAI_URL = "https://api.openai.com/v1"
DRIVERS = {
    "hosted_vllm": "vllm",
    "openai": "openai",
    "text-completion-openai": "openai",
    "custom_openai": "openai",
    "openai_like": "openai",
    "lm_studio": "openai",
    "llamafile": "openai",
    "xinference": "openai",
    "ollama": "openai",
    "ollama_chat": "openai",
    "litellm_proxy": "openai",
}
"""Drivers by LiteLLM's provider, for providers whose servers have OpenAI's HTTP API."""
NO_KEYS = frozenset({"", "none", "empty", "dummy", "fake", "fake-key", "not-needed", "na", "sk-1234"})
"""Placeholders that people write if an engine accepts any key."""
MODES = {
    None: (Tier.CHAT, Task.TEXT),
    "chat": (Tier.CHAT, Task.TEXT),
    "responses": (Tier.CHAT, Task.TEXT),
    "completion": (Tier.AUTOCOMPLETE, Task.TEXT),
    "embedding": (Tier.CHAT, Task.EMBEDDING),
    "rerank": (Tier.CHAT, Task.RERANK),
}
"""Tier and task, by `model_info.mode`."""
PRICES = {
    "input_micro": "input_cost_per_token",
    "output_micro": "output_cost_per_token",
    "cached_input_micro": "cache_read_input_token_cost",
    "cache_write_micro": "cache_creation_input_token_cost",
}
PARAMETERS = frozenset({
    "model", "custom_llm_provider", "api_base", "base_url", "api_key", "weight", "max_tokens", *PRICES.values(),
})  # fmt: skip
INFORMATION = frozenset({
    "id", "db_model", "mode", "max_tokens", "max_input_tokens", "max_output_tokens", "description", *PRICES.values(),
})  # fmt: skip
"""The entries of `litellm_params` and `model_info` that are read here. A note lists each other entry."""
_RATES = (
    "limit the engine by `slipstream fleet pools set --max-concurrency`, customers by `slipstream customers limits set`"
)
_TIMEOUT = "gateway.first_event_timeout_s and gateway.event_timeout_s hold for all models"
STEPS = {
    "rpm": _RATES,
    "tpm": _RATES,
    "timeout": _TIMEOUT,
    "stream_timeout": _TIMEOUT,
    "max_retries": "no setting: a failed attempt is repeated on another replica",
    "order": "replicas share the load by weight; an engine that fails gets none until it is well",
    "temperature": "clients set it themselves",
}
MICRO_PER_MILLION = 10**12


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `model_list` that can be served. key_env: empty to send no key."""

    name: str
    provider: str
    engine_model: str
    url: str
    key_env: str
    weight: float
    tier: Tier
    task: Task
    context_tokens: int | None
    default_max_tokens: int | None
    description: str
    price: PlannedPrice | None


def planned_models(
    entries: list[dict[str, Any]], aliases: Mapping[str, str], environment: Mapping[str, str], notes: Notes
) -> list[PlannedModel]:
    """A model for each name in the list, with the entries of that name as its replicas. aliases: names by alias."""
    found: dict[str, list[Deployment]] = {}
    for number, entry in enumerate(entries):
        deployment = _deployment(entry, number, environment, notes)
        if deployment is not None:
            found.setdefault(deployment.name, []).append(deployment)
    own: dict[str, list[str]] = {}
    for alias, name in aliases.items():
        if name in found and alias not in found:
            own.setdefault(name, []).append(alias)
        else:
            reason = "its model is not imported" if name not in found else "a model has this name"
            notes.left_out(f"alias {alias} of {name}", reason)
    return [_planned(name, each, own.get(name, []), notes) for name, each in found.items()]


def _deployment(entry: dict[str, Any], number: int, environment: Mapping[str, str], notes: Notes) -> Deployment | None:
    name = str(entry.get("model_name") or "")
    where = f"model_list[{number}] {name}"
    parameters, known = dict(entry.get("litellm_params") or {}), dict(entry.get("model_info") or {})
    if not name or "*" in name:
        notes.left_out(where, "a wildcard stands for many models", "name each model to serve")
        return None
    provider, engine_model = _provider(parameters)
    driver, mode = DRIVERS.get(provider), known.get("mode")
    if driver is None:
        step = "keep LiteLLM in front for it, or use a server of OpenAI's HTTP API"
        notes.left_out(where, f"provider {provider or 'unknown'!r}: its API is not supported", step)
        return None
    if mode not in MODES:
        modes = ", ".join(mode for mode in MODES if mode)
        notes.left_out(where, f"mode {mode!r} is not served here: {modes} are")
        return None
    base = parameters.get("api_base") or parameters.get("base_url")
    url = _resolved(OPENAI_URL if base is None and provider == "openai" else base, environment)
    if url is None:
        notes.left_out(
            where, f"api_base {base!r} has no value in this environment", "set the variable, or write the URL"
        )
        return None
    for parameter in sorted(parameters.keys() - PARAMETERS):
        notes.left_out(f"{where}: {parameter}", "no counterpart for one engine of a model", STEPS.get(parameter, ""))
    for field in sorted(key for key in known.keys() - INFORMATION if known[key] not in (None, "", [], {})):
        notes.left_out(f"{where}: model_info.{field}", "no counterpart")
    for field in sorted(entry.keys() - {"model_name", "litellm_params", "model_info"}):
        notes.left_out(f"{where}: {field}", "no counterpart", STEPS.get(field, ""))
    return Deployment(
        name=name,
        provider=provider,
        engine_model=engine_model,
        url=url,
        key_env=_key_env(where, parameters.get("api_key"), notes),
        weight=_number(where, parameters, "weight", notes) or 1.0,
        tier=MODES[mode][0],
        task=MODES[mode][1],
        context_tokens=known.get("max_input_tokens") or known.get("max_tokens"),
        default_max_tokens=parameters.get("max_tokens"),
        description=str(known.get("description") or "")[:500],
        price=_price(where, {**known, **parameters}, notes, writes=MODES[mode][1] is Task.TEXT),
    )


def _provider(parameters: dict[str, Any]) -> tuple[str, str]:
    """LiteLLM's provider, and the engine's name for the model."""
    model = str(parameters.get("model") or "")
    named = parameters.get("custom_llm_provider")
    first, slash, rest = model.partition("/")
    if named:
        return str(named), rest if slash and first == named else model
    if slash:
        return first, rest
    # Without a provider, LiteLLM sends the names of OpenAI's models to OpenAI.
    return ("openai" if parameters.get("api_base") or model.startswith(("gpt-", "o1", "o3", "o4")) else ""), model


def _resolved(value: Any, environment: Mapping[str, str]) -> str | None:
    if value is None or not str(value).startswith(ENVIRONMENT):
        return None if value is None else str(value)
    return environment.get(str(value).removeprefix(ENVIRONMENT))


def _key_env(where: str, value: Any, notes: Notes) -> str:
    """The environment variable with the engine's key. The key itself is never in the fleet or the report."""
    text = "" if value is None else str(value)
    if text.startswith(ENVIRONMENT):
        name = text.removeprefix(ENVIRONMENT)
        notes.differs(
            f"{where}: api_key", f"gateways read {name}", "set it for them and restart them before the import"
        )
        return name
    if text.lower() not in NO_KEYS:
        step = "write the key to a file and set api_key_file of the pool: `slipstream fleet pools set --file`"
        notes.left_out(f"{where}: api_key", "a key in the configuration is not copied", step)
    return ""


def _number(where: str, parameters: Mapping[str, Any], name: str, notes: Notes) -> float | None:
    """The entry's number; None if it has none, or, with a note, another value."""
    value = parameters.get(name)
    try:
        number = None if value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number is None or 0 <= number < math.inf:
        return number
    notes.left_out(f"{where}: {name}", f"{value!r} is not a number from 0 on")
    return None


def _price(where: str, parameters: Mapping[str, Any], notes: Notes, *, writes: bool) -> PlannedPrice | None:
    """writes: whether the model generates tokens, which then need a price."""
    rates = {ours: _number(where, parameters, theirs, notes) for ours, theirs in PRICES.items()}
    needed = [PRICES[ours] for ours in ("input_micro", "output_micro") if rates[ours] is None]
    if len(needed) == 2:
        return None
    for theirs in needed if writes else ():
        notes.differs(f"{where}: {theirs}", "no price in the configuration: these tokens are free here")
    micro = {ours: None if rate is None else round(rate * MICRO_PER_MILLION) for ours, rate in rates.items()}
    return PlannedPrice(
        input_micro=micro["input_micro"] or 0,
        output_micro=micro["output_micro"] or 0,
        cached_input_micro=micro["cached_input_micro"],
        cache_write_micro=micro["cache_write_micro"],
    )


def _planned(name: str, deployments: list[Deployment], aliases: list[str], notes: Notes) -> PlannedModel:
    first = deployments[0]
    alike = [each for each in deployments if _interchangeable(each, first)]
    for other in deployments:
        if other not in alike:
            notes.left_out(
                f"model {name}: {other.provider}/{other.engine_model} at {other.url}",
                "another upstream model, key or mode under one name",
                "let a second pool take a share: `slipstream releases start`, or a canary of the model",
            )
    slug = re.sub(r"[^0-9A-Za-z._-]+", "-", name).strip("-.") or "model"
    urls = list(dict.fromkeys(each.url.rstrip("/") for each in alike))
    if len(urls) < len(alike):
        notes.differs(f"model {name}", "entries of one api_base become one replica")
    weights = {each.url.rstrip("/"): each.weight for each in reversed(alike)}
    pool = Pool(
        slug,
        DRIVERS[first.provider],
        tuple(Replica(f"{slug}-{number}", url, weights[url]) for number, url in enumerate(urls)),
        api_key_env=first.key_env,
        api_key_required=bool(first.key_env),
        max_completion_tokens=first.url == OPENAI_URL,
    )
    if pool.driver == "openai" and first.url != OPENAI_URL:
        step = f"for SGLang or vLLM set the pool's driver: `slipstream fleet pools set {slug} --driver sglang`"
        notes.differs(f"model {name}", "its engine is treated as a server of OpenAI's API", step)
    context_tokens = next((each.context_tokens for each in alike if each.context_tokens), None)
    if context_tokens is None:
        step = f"`slipstream fleet models set {name} --context-tokens N`, with the engine's own limit"
        notes.differs(f"model {name}", f"no max_input_tokens: {ASSUMED_CONTEXT_TOKENS:,} tokens are assumed", step)
    prices = [each.price for each in alike if each.price is not None]
    if any(price != prices[0] for price in prices):
        notes.differs(f"model {name}", "a model has one price: that of its first entry is taken")
    optional: dict[str, Any] = {"default_max_tokens": first.default_max_tokens} if first.default_max_tokens else {}
    model = Model(
        name,
        first.tier,
        slug,
        context_tokens or ASSUMED_CONTEXT_TOKENS,
        tuple(aliases),
        description=first.description,
        task=first.task,
        engine_model=None if first.engine_model == name else first.engine_model,
        **optional,
    )
    return PlannedModel(model, pool, prices[0] if prices else None)


def _interchangeable(one: Deployment, other: Deployment) -> bool:
    def kind(each: Deployment) -> tuple[object, ...]:
        return DRIVERS[each.provider], each.engine_model, each.key_env, each.tier, each.task

    return kind(one) == kind(other)
