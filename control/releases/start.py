"""Checks a requested release against the fleet. Pure."""

from __future__ import annotations

import itertools

import msgspec

from contracts.desired_state import Canary, DesiredState, Model, Pool
from contracts.errors import ConfigError, Conflict, InvalidField
from contracts.generation import Tier
from contracts.pooling import Task
from control.fleet.named import model_named, pool_named
from control.fleet.servable import check_served
from control.releases.margins import Margins, least_units_of
from control.releases.release import SHADOW
from engines.drivers import registry as drivers

MAX_SHARE = 0.5
"""The candidate's largest share before all traffic: the control arm has as many sessions."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's request. engine_model: see `Canary`."""

    model: str
    candidate_pool: str
    engine_model: str | None
    control_pool: str
    stages: tuple[float, ...]
    margins: Margins


def require_startable(state: DesiredState, wanted: Wanted) -> tuple[Model, Margins]:
    """The model, and the margins with the least sessions of every stage.

    Raises InvalidField with the field, and Conflict if the model is already split.
    """
    model = model_named(state, wanted.model)
    if model.name != wanted.model:
        raise InvalidField(f"{wanted.model!r} is an alias of the model {model.name!r}; name the model.", param="model")
    if model.canary is not None:
        raise Conflict(_split_already(model.name, model.canary))
    if model.task is not Task.TEXT:  # `DesiredState.check` refuses its split
        raise InvalidField(
            f"Invalid value for 'model': {model.name!r} has the task {model.task.value!r}, and only models of the task "
            f"{Task.TEXT.value!r} are released in stages; change its pool by `slipstream fleet models set`.",
            param="model",
        )
    _require_candidate(state, model, wanted)
    _require_control(state, model, wanted)
    return model, _margins(wanted)


def _split_already(name: str, canary: Canary) -> str:
    activity = f"sends {100 * canary.share:.4g} % of its sessions" if canary.share else "has requests copied"
    end = f"roll back its release {canary.release}" if canary.release else "remove its canary"
    return f"The model {name!r} already {activity} to the pool {canary.pool!r}; {end} first, or wait for its end."


def _require_candidate(state: DesiredState, model: Model, wanted: Wanted) -> None:
    candidate = pool_named(state, wanted.candidate_pool, "candidate_pool")
    if candidate.name == model.pool:
        raise InvalidField(
            f"The pool {candidate.name!r} already serves {model.name!r}; the candidate needs its own pool.",
            param="candidate_pool",
        )
    _require_replicas(candidate, "candidate_pool")
    _require_serves(state, model, candidate, "candidate_pool")


def _require_control(state: DesiredState, model: Model, wanted: Wanted) -> None:
    name = wanted.control_pool or model.pool
    control = pool_named(state, name, "control_pool")
    if name == wanted.candidate_pool:
        raise InvalidField("The control arm cannot run on the candidate's pool.", param="control_pool")
    _require_replicas(control, "control_pool")
    _require_serves(state, model, control, "control_pool")
    if name == model.pool and not drivers.of_pool(control).capabilities.salted_cache:
        raise InvalidField(
            f"The engines of the pool {name!r} share one prefix cache among all tenants. A control arm among "
            "them would find it warm, and the candidate would not: name a pool of fresh replicas of the baseline "
            "(--control POOL; control_pool in the API; Control arm in the console).",
            param="control_pool",
        )


def _margins(wanted: Wanted) -> Margins:
    stages, serving = wanted.stages, [share for share in wanted.stages if SHADOW < share < 1]
    rising = all(low < high for low, high in itertools.pairwise(stages))
    if not serving or not rising or stages[0] < SHADOW or stages[-1] != 1 or serving[-1] > MAX_SHARE:
        raise InvalidField(
            f"Invalid value for 'stages': {', '.join(f'{share:g}' for share in stages)}. They must rise from 0 "
            f"(shadow) or a share to 1 (all traffic), with at least one share, up to {MAX_SHARE:g}, in between.",
            param="stages",
        )
    wanted.margins.require_quantiles()
    least = wanted.margins.least_units
    if least is not None and len(least) != len(serving):
        raise InvalidField(
            f"Invalid value for 'least_units': {len(least)} of {len(serving)} numbers; give one for each stage "
            "between shadow and all traffic.",
            param="margins.least_units",
        )
    return msgspec.structs.replace(wanted.margins, least_units=least or least_units_of(len(serving)))


def _require_serves(state: DesiredState, model: Model, pool: Pool, param: str) -> None:
    """Require that the pool takes the model's longest request and has the capabilities of the model's own pool: during
    a release, a model offers only what its weakest pool can do."""
    if pool.role == "prefill":
        raise InvalidField(
            f"Invalid value for {param!r}: {pool.name!r} computes prompts for other pools and serves no clients; name "
            "its decode pool.",
            param=param,
        )
    _require_tier(state, model, pool, param)
    _require_context(model, pool, param)
    try:
        check_served(model, pool)
    except ConfigError as error:
        raise InvalidField(f"{error.message}.", param=param) from None
    baseline = pool_named(state, model.pool, "model")
    own, other = (drivers.of_pool(each).capabilities for each in (baseline, pool))
    if model.tier is Tier.AUTOCOMPLETE and own.token_prompts != other.token_prompts:
        raise InvalidField(
            f"Gaps are filled by token ids in one of the pools {model.pool!r} and {pool.name!r}, and the other takes "
            "none, so requests with a 'suffix' may be refused while the release runs; name a pool with the driver "
            f"{baseline.driver!r}.",
            param=param,
        )
    if own.salted_cache and not other.salted_cache:
        raise InvalidField(
            f"The engines of the pool {pool.name!r} share prefix caches between tenants, but those of {model.pool!r} "
            "do not. Set cache_salt = true if the engines separate caches by `cache_salt` (vLLM), or name another "
            "pool.",
            param=param,
        )


def _require_tier(state: DesiredState, model: Model, pool: Pool, param: str) -> None:
    """Refuse a pool that serves only another tier: it runs another kind of model and would fail every request."""
    served = [each for each in state.models if each.pool == pool.name]
    if served and all(each.tier is not model.tier for each in served):
        names = ", ".join(f"{each.name!r} (tier {each.tier.value})" for each in served)
        raise InvalidField(
            f"Invalid value for {param!r}: {pool.name!r}. It serves {names}, and {model.name!r} has the tier "
            f"{model.tier.value}. Name a pool whose engines serve {model.name!r}; `slipstream fleet pools set NAME "
            "--driver DRIVER --replica ID=URL` adds one.",
            param=param,
        )


def _require_context(model: Model, pool: Pool, param: str) -> None:
    """Check the replicas that take load: sessions of this arm have no other pool to fall back on."""
    contexts = {each.id: each.context_tokens or model.context_tokens for each in pool.replicas if each.weight > 0}
    longest = max(contexts, key=lambda replica: contexts[replica])
    promised, most = model.context_tokens, contexts[longest]
    if most < promised:
        raise InvalidField(
            f"Invalid value for {param!r}: {pool.name!r}. Its replicas accept at most {most:,} tokens ({longest!r}) "
            f"and models.{model.name}.context_tokens promises {promised:,}: {promised - most:,} too few. A pool with "
            f"a replica of {promised:,} or more can be released: start an engine with so long a context and set its "
            f"replica's context_tokens, name another pool, or promise {most:,} at most.",
            param=param,
        )


def _require_replicas(pool: Pool, param: str) -> None:
    if not any(replica.weight > 0 for replica in pool.replicas):
        raise InvalidField(f"The pool {pool.name!r} has no replica that takes load; add one first.", param=param)
