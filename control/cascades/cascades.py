"""Lets a model's cascade answer customers, once a comparison has shown that it is within its quality budget."""

from __future__ import annotations

from uuid import UUID

import msgspec

from contracts.cascade import Approval, Cascade
from contracts.cascade_digest import measured
from contracts.desired_state import DesiredState
from contracts.errors import Conflict
from control.api.call import AdminCall
from control.api.schemas import Body
from control.evals import store
from control.evals.store import Comparison
from control.fleet import edits
from control.fleet.fleet_edit import EditQuery, FleetEdit, edited, in_force
from control.fleet.revision import since
from storage.tables.evals import Decision


class CascadeApproval(Body, frozen=True, kw_only=True):
    """comparison: a comparison of the model's own pool, as the baseline, with the pool of the cascade's small model,
    which stands for the cascade."""

    comparison: UUID


class _Slice(msgspec.Struct):
    lower: float


class _Verdict(msgspec.Struct):
    slices: tuple[_Slice, ...]


async def approve_cascade(call: AdminCall, model_name: str, body: CascadeApproval, query: EditQuery) -> FleetEdit:
    """Allow a model's cascade to answer customers' requests.

    The response is 409 unless the comparison passed with the cascade's quality margin or a smaller one, and both pools
    are in use and unchanged since the comparison was queued. A later change of either pool ends the approval.
    """
    state = (await in_force(call)).state
    cascade = _cascade(state, model_name)
    found = await store.comparison(call.connection, body.comparison)
    _require_about(state, model_name, cascade, found)
    _require_passed(cascade, found)
    versions = [one.state for one in await since(call.connection, found.created_at)]
    for version in versions:
        if _measured(version, model_name) != _measured(state, model_name):
            raise Conflict(
                f"What the comparison {found.id} compared has changed since: in version {version.version} of the fleet "
                f"the cascade of {model_name!r}, its models or their pools were different. Compare again."
            )
    lowest = min(one.lower for one in msgspec.convert(found.verdict, _Verdict).slices)
    approval = Approval(str(found.id), _measured(state, model_name), lowest)
    return await edited(
        call, query, "cascade.approve", lambda state: edits.approve_cascade(state, model_name, approval)
    )


def _cascade(state: DesiredState, model_name: str) -> Cascade:
    cascade = edits.find_model(state, model_name).cascade
    if cascade is None:
        raise Conflict(
            f"The model {model_name!r} has no cascade. Give it one with `slipstream fleet models set --file`, and "
            "compare it."
        )
    return cascade


def _require_about(state: DesiredState, model_name: str, cascade: Cascade, found: Comparison) -> None:
    model, first = edits.find_model(state, model_name), edits.find_model(state, cascade.first)
    expected = model.name, model.pool, first.pool
    if (found.model, found.baseline_pool, found.candidate_pool) != expected:
        raise Conflict(
            f"The comparison {found.id} compared {found.model!r} on {found.baseline_pool!r} and "
            f"{found.candidate_pool!r}; the cascade needs a comparison of {model.name!r} on {model.pool!r} and "
            f"{first.pool!r}."
        )


def _require_passed(cascade: Cascade, found: Comparison) -> None:
    if found.decision is not Decision.PASS:
        status = found.status.value if found.decision is None else found.decision.value
        raise Conflict(
            f"The comparison {found.id} has not passed; its status is {status}. See `slipstream evals show {found.id}`."
        )
    widest = max(found.rule.margin, *found.rule.margins.values(), 0.0)
    if widest > cascade.quality_margin:
        raise Conflict(
            f"The comparison {found.id} passed by a margin of {widest:g}; the cascade's quality_margin is "
            f"{cascade.quality_margin:g}. Compare with that margin or a smaller one."
        )


def _measured(state: DesiredState, model_name: str) -> str:
    """The digest of the model's cascade in a version; empty if it had none."""
    model = state.model(model_name)
    return "" if model is None or model.cascade is None else measured(state, model)
