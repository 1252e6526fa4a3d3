"""Edits of the fleet, as functions from one desired state to the next. They do no I/O.

Each refuses an edit that would break the fleet: an unknown name, a removal of an object in use, a model without an
engine. `control/fleet/revision.py` writes the result and counts its version.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from msgspec.structs import replace

from contracts.cascade import Approval
from contracts.cascade_digest import measured
from contracts.desired_state import NO_PATH_SEGMENT, DesiredState, Model, Pool, Replica, is_path_segment
from contracts.errors import ConfigError, Conflict, InvalidField, NotFound

Edit = Callable[[DesiredState], DesiredState]
"""Raises a RequestError for an impossible edit; the given state then stays in force."""
LONGEST_NAME = 256


def put_model(state: DesiredState, model: Model, *, force: bool = False) -> DesiredState:
    """Add a model, or replace the one of its name in place. force: accept a pool that cannot serve it.

    Raises Conflict and InvalidField.
    """
    known = find_model(state, model.name) if state.model(model.name) is not None else None
    _require_own_approval(known, model)
    for name in (model.name, *model.aliases):
        _require_name(name, "name" if name == model.name else "aliases")
        owner = state.model(name)
        if owner is not None and owner is not known:
            what = "model" if owner.name == name else f"alias of the model {owner.name!r}"
            step = "" if owner.name == name else "; move it with `slipstream fleet models alias`"
            raise Conflict(f"{name!r} is the name of a {what}{step}, or choose another.", param="aliases")
    models = tuple(model if each is known else each for each in state.models)
    return _edited(state, replace(state, models=models if known is not None else (*models, model)), force)


def add_model(state: DesiredState, model: Model, pool: Pool, *, force: bool = False) -> DesiredState:
    """Add a model together with its pool. Raises Conflict if either name is taken, and InvalidField."""
    for what, name, known in (
        ("model", model.name, state.model(model.name)),
        ("pool", pool.name, state.pool(pool.name)),
    ):
        if known is not None:
            raise Conflict(f"There is a {what} {name!r} already; choose another name, or change that one.", param=what)
    return put_model(put_pool(state, pool, force=force), model, force=force)


def remove_model(state: DesiredState, name: str, *, force: bool = False) -> DesiredState:
    """Remove a model and its aliases. force: also the last model. Raises Conflict and NotFound."""
    removed = find_model(state, name)
    _require_no_release(removed)
    models = tuple(each for each in state.models if each is not removed)
    if not models and not force:
        raise Conflict(
            f"{name!r} is the only model, and no gateway is ready without a model. Add another one first, or force "
            "the change (`--force`; `?force=true`)."
        )
    return _edited(state, replace(state, models=models), force)


def put_alias(state: DesiredState, alias: str, name: str) -> DesiredState:
    """Point an alias to the model `name`. It moves from another model in one version, so that it always has a model.

    Raises Conflict and NotFound.
    """
    _require_name(alias, "alias")
    target, owner = find_model(state, name), state.model(alias)
    if owner is not None and owner.name == alias:
        raise Conflict(f"{alias!r} is the name of a model, not an alias; choose another, or remove that model first.")
    if owner is target:
        return state

    def moved(model: Model) -> Model:
        if model is owner:
            return replace(model, aliases=tuple(each for each in model.aliases if each != alias))
        return replace(model, aliases=(*model.aliases, alias)) if model is target else model

    return _edited(state, replace(state, models=tuple(map(moved, state.models))), force=False)


def remove_alias(state: DesiredState, alias: str) -> DesiredState:
    """Remove an alias: requests that name it are then refused. Raises NotFound."""
    owner = state.model(alias)
    if owner is None or owner.name == alias:
        aliases = [each for model in state.models for each in model.aliases]
        raise _unknown("alias", alias, aliases)
    without = replace(owner, aliases=tuple(each for each in owner.aliases if each != alias))
    return _edited(state, _with_model(state, without), force=False)


def approve_cascade(state: DesiredState, name: str, approval: Approval) -> DesiredState:
    """Let a model's cascade answer customers. Raises NotFound, and Conflict if it differs from the approved one."""
    model = find_model(state, name)
    if model.cascade is None or measured(state, model) != approval.measured:
        raise Conflict(f"The cascade of {name!r} has just been changed; compare the changed cascade.")
    cascade = replace(model.cascade, approval=approval)
    return _checked(_with_model(state, replace(model, cascade=cascade)))


def put_pool(state: DesiredState, pool: Pool, *, force: bool = False) -> DesiredState:
    """Add a pool, or replace the one of its name, replicas included. Raises Conflict and InvalidField."""
    _require_segment(pool.name, "name")
    for replica in pool.replicas:
        _require_segment(replica.id, "replicas")
        _require_replica_free(state, pool.name, replica.id)
    return _edited(state, _with_pool(state, pool), force)


def remove_pool(state: DesiredState, name: str) -> DesiredState:
    """Remove a pool with its replicas; running requests finish. Raises Conflict while a model names it."""
    removed = find_pool(state, name)
    users = [model.name for model in state.models if name in pools_of(model)]
    if users:
        raise Conflict(
            f"The pool {name!r} serves {', '.join(users)}; point them to another pool with "
            "`slipstream fleet models set`, or remove them, first."
        )
    return _checked(replace(state, pools=tuple(each for each in state.pools if each is not removed)))


def put_replica(state: DesiredState, pool_name: str, replica: Replica, *, force: bool = False) -> DesiredState:
    """Add a replica to a pool, or replace the one of its id there. Raises Conflict, InvalidField, NotFound."""
    pool = find_pool(state, pool_name)
    _require_segment(replica.id, "id")
    _require_replica_free(state, pool_name, replica.id)
    return _edited(state, _with_pool(state, replace(pool, replicas=_placed(pool.replicas, replica))), force)


def remove_replica(state: DesiredState, pool_name: str, replica_id: str, *, force: bool = False) -> DesiredState:
    """Remove a replica; running requests finish. Raises Conflict for the last that serves, NotFound."""
    pool = find_pool(state, pool_name)
    removed = find_replica(pool, replica_id)
    rest = tuple(each for each in pool.replicas if each is not removed)
    return _edited(state, _with_pool(state, replace(pool, replicas=rest)), force)


def set_weight(
    state: DesiredState, pool_name: str, replica_id: str, weight: float, *, force: bool = False
) -> DesiredState:
    """Give a replica another share of its pool's load; 0 drains it. Raises Conflict for the last that serves,
    InvalidField, NotFound."""
    if not 0 <= weight < float("inf"):
        raise InvalidField(
            f"Invalid value for 'weight': {weight:g}; it must be 0 or more, and 0 drains the replica.", param="weight"
        )
    pool = find_pool(state, pool_name)
    replica = replace(find_replica(pool, replica_id), weight=float(weight))
    return _edited(state, _with_pool(state, replace(pool, replicas=_placed(pool.replicas, replica))), force)


def restore(state: DesiredState, earlier: DesiredState, *, force: bool = False) -> DesiredState:
    """Restore an earlier version, except for splits of releases that have ended since. Raises Conflict for a model
    whose running release would change, or that no engine would serve."""
    running = {model.canary.release for model in state.models if model.canary is not None}

    def without_old_split(model: Model) -> Model:
        canary = model.canary
        return replace(model, canary=None) if canary is not None and canary.release not in {"", *running} else model

    models = tuple(map(without_old_split, earlier.models))
    return _edited(state, replace(state, models=models, pools=earlier.pools), force)


def find_model(state: DesiredState, name: str) -> Model:
    """The model of this name. Raises NotFound, also for an alias, and then names its model."""
    found = state.model(name)
    if found is None:
        raise _unknown("model", name, [model.name for model in state.models])
    if found.name != name:
        raise NotFound(f"There is no model {name!r}: it is an alias of {found.name!r}.")
    return found


def find_pool(state: DesiredState, name: str) -> Pool:
    """The pool of this name. Raises NotFound."""
    found = state.pool(name)
    if found is None:
        raise _unknown("pool", name, [pool.name for pool in state.pools])
    return found


def find_replica(pool: Pool, replica_id: str) -> Replica:
    """The pool's replica of this id. Raises NotFound."""
    for replica in pool.replicas:
        if replica.id == replica_id:
            return replica
    raise _unknown(f"replica of the pool {pool.name!r} called", replica_id, [each.id for each in pool.replicas])


def pools_of(model: Model) -> set[str]:
    """Every pool that a model's sessions may go to."""
    canary = model.canary
    return {model.pool} if canary is None else {model.pool, canary.pool, canary.control_pool} - {""}


def released(model: Model | None) -> str:
    """The release that divides a model's sessions now; empty without one."""
    return model.canary.release if model is not None and model.canary is not None else ""


def _edited(before: DesiredState, after: DesiredState, force: bool) -> DesiredState:
    """Return `after` if it is consistent, does not change running releases and, unless forced, does not take away a
    model's last engine."""
    _checked(after)
    for model in before.models:
        if released(model) and not _same_release(model, after.model(model.name)):
            _require_no_release(model)
    if not force:
        unserved = {model.name for model in before.models if _idle_pools(before, model)}
        for model in after.models:
            idle = [] if model.name in unserved else _idle_pools(after, model)
            if idle:
                raise Conflict(
                    f"Nothing would serve {model.name!r} in the pool {idle[0]!r}: none of its replicas has a weight "
                    "above 0. Add one or move the model to another pool first, or force it (`--force`; `?force=true`)."
                )
    return after


def _checked(state: DesiredState) -> DesiredState:
    try:
        state.check()
    except ConfigError as error:
        raise InvalidField(f"{error.message}.", param=error.param) from None
    return state


def _idle_pools(state: DesiredState, model: Model) -> list[str]:
    """Pools that the model's sessions go to and where no engine would serve them."""
    serving = {pool.name for pool in state.pools if any(replica.weight > 0 for replica in pool.replicas)}
    return sorted(pools_of(model) - serving)


def _same_release(before: Model, after: Model | None) -> bool:
    """Whether a model with a running release is still served as that release arranged it."""
    return after is not None and (after.pool, after.engine_model, after.canary) == (
        before.pool,
        before.engine_model,
        before.canary,
    )


def _require_own_approval(known: Model | None, model: Model) -> None:
    """Refuse an approval that was written by hand, and not given for a comparison."""
    approval = model.cascade.approval if model.cascade is not None else None
    if approval is not None and (known is None or known.cascade is None or known.cascade.approval != approval):
        raise InvalidField(
            "'cascade.approval' is set by `slipstream fleet models cascade`, for a comparison that passed; leave it "
            "out.",
            param="cascade.approval",
        )


def _require_no_release(model: Model) -> None:
    if released(model):
        raise Conflict(
            f"The release {released(model)} divides the sessions of {model.name!r}; promote it or roll it back first: "
            "`slipstream releases`."
        )


def _require_replica_free(state: DesiredState, pool_name: str, replica_id: str) -> None:
    for pool in state.pools:
        if pool.name != pool_name and any(replica.id == replica_id for replica in pool.replicas):
            raise Conflict(
                f"{replica_id!r} is a replica of the pool {pool.name!r}; remove it there first, or choose another id.",
                param="id",
            )


def _require_name(name: str, field: str) -> None:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidField(
            f"Invalid value for '{field}': a name is 1 to {LONGEST_NAME} printable characters.", param=field
        )


def _require_segment(name: str, field: str) -> None:
    """Check a name that the admin API's paths use next to fixed segments."""
    _require_name(name, field)
    if not is_path_segment(name):
        raise InvalidField(f"Invalid value for '{field}': {name!r}; {NO_PATH_SEGMENT}", param=field)


def _with_model(state: DesiredState, model: Model) -> DesiredState:
    return replace(state, models=tuple(model if each.name == model.name else each for each in state.models))


def _with_pool(state: DesiredState, pool: Pool) -> DesiredState:
    if state.pool(pool.name) is None:
        return replace(state, pools=(*state.pools, pool))
    return replace(state, pools=tuple(pool if each.name == pool.name else each for each in state.pools))


def _placed(replicas: tuple[Replica, ...], replica: Replica) -> tuple[Replica, ...]:
    if all(each.id != replica.id for each in replicas):
        return (*replicas, replica)
    return tuple(replica if each.id == replica.id else each for each in replicas)


def _unknown(what: str, name: str, names: list[str]) -> NotFound:
    near = get_close_matches(name, names, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return NotFound(f"There is no {what} {name!r}.{hint} There are: {', '.join(names) or 'none'}.")
