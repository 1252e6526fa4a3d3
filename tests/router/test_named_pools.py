"""Asks that name a pool: served there whatever the model's split says, behind asks of a higher class."""

from __future__ import annotations

from contracts.desired_state import Canary, DesiredState, Model, Pool, Replica
from contracts.errors import ModelNotFound
from contracts.generation import BACKGROUND_PRIORITY, Tier
from router.core.decisions import Granted, Refused
from router.core.events import StatePublished
from tests.router.core_driver import Core


def state(version: int, *, spare: bool = True) -> DesiredState:
    """The model m on `old`, with a canary that takes nobody, and another pool."""
    names = ("old", "new", "spare") if spare else ("old", "new")
    pools = tuple(Pool(name, "sglang", (Replica(f"{name}-1", f"http://{name}"),), 1) for name in names)
    model = Model("m", Tier.CHAT, "old", 4_096, engine_model="plain", canary=Canary("new", 0.0, "tuned"))
    return DesiredState(version, (model,), pools)


def test_it_is_served_there_under_the_name_that_pool_has_for_the_model() -> None:
    core = Core(state(1))
    for pool, engine_model in (("", "plain"), ("new", "tuned"), ("spare", "plain")):
        (granted,) = core.ask(model="m", pool=pool)
        assert isinstance(granted, Granted)
        assert (granted.lease.engine.pool, granted.lease.engine.model) == (pool or "old", engine_model)


def test_one_that_is_not_or_no_longer_there_is_refused_and_not_replaced() -> None:
    core = Core(state(1))
    (refused,) = core.ask(model="m", pool="gone")
    assert isinstance(refused, Refused)
    assert (refused.code, refused.reason) == (ModelNotFound.code, "The pool gone does not exist.")
    core.placed("first", model="m", pool="spare")
    assert core.ask("second", model="m", pool="spare") == []
    answers = core.do(StatePublished(state(2, spare=False)))
    assert [(one.lease_id, one.reason) for one in answers if isinstance(one, Refused)] == [
        ("second", "The pool spare does not exist.")
    ]


def test_whoever_else_waits_goes_first() -> None:
    core = Core(state(1))
    core.placed("running", model="m")
    core.ask("evals", model="m", pool="old", priority=BACKGROUND_PRIORITY, organization_id="internal")
    core.ask("customer", model="m", organization_id="acme")
    granted = [one.lease.lease_id for one in core.over("running") if isinstance(one, Granted)]
    assert granted == ["customer"]
    assert [one.lease.lease_id for one in core.over("customer") if isinstance(one, Granted)] == ["evals"]
