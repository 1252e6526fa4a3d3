"""A release's places, whatever happens in whatever order: none skipped or doubled, and no split left behind."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as any_

from contracts.desired_state import Canary, DesiredState
from contracts.errors import Conflict
from control.releases.machine import Event, Place, State, after
from control.releases.release import Release, fleet_before, fleet_for, is_of, why_lost, without_splits_of
from tests.control.releases.fleets import FLEET, MODEL, STAGES, release


def moved(before: Release, event: Event) -> Release:
    """As `store.step` moves it. Raises Conflict."""
    place = after(before.place, event, len(before.stages))
    return msgspec.structs.replace(before, state=place.state, stage=place.stage)


def share_of(state: DesiredState) -> float:
    model = state.model("m")
    assert model is not None
    return 0.0 if model.canary is None else model.canary.share


@given(any_.lists(any_.sampled_from([each for each in Event if each is not Event.START]), max_size=30))
def test_whatever_happens_stages_follow_each_other_and_the_share_never_shrinks_before_the_end(
    events: list[Event],
) -> None:
    current, fleet = release(), FLEET
    for event in events:
        try:
            following = moved(current, event)
        except Conflict:
            continue
        if current.state is State.PROMOTED:
            assert following.state is State.ROLLED_BACK
            assert fleet_before(fleet, current, None) == FLEET
            return
        assert not current.state.ended
        assert following.stage - current.stage in (0, 1)
        now = fleet_for(fleet, following, f"drawn{following.stage}")
        if following.state.splits:
            assert share_of(now) >= share_of(fleet)
            assert share_of(now) == STAGES[following.stage]
            assert why_lost(now, following) is None
        else:
            assert share_of(now) == 0
            assert following.state is State.WAITING or not is_of(now.models[0], following)
        assert now.models[1:] == FLEET.models[1:]
        assert (now.models[0].pool == "new") == (following.state is State.PROMOTED)
        if following.state is State.PROMOTED:
            assert following.stage == len(STAGES) - 1
        assert fleet_for(now, following, f"drawn{following.stage}") == now, "done twice is done once"
        current, fleet = following, now


def test_only_the_way_through_every_stage_leads_to_all_traffic() -> None:
    place = after(Place(State.WAITING, 0), Event.BEGIN, len(STAGES))
    seen = [place]
    while not place.state.ended:
        place = after(place, Event.ADVANCE, len(STAGES))
        seen.append(place)
    assert [each.stage for each in seen] == [0, 1, 2, 3, 4]
    assert [each.state for each in seen] == [State.RUNNING] * 4 + [State.PROMOTED]


@pytest.mark.parametrize("state", [State.WAITING, State.RUNNING, State.HELD])
@pytest.mark.parametrize("event", [Event.FAIL, Event.ROLL_BACK, Event.LOST])
def test_everything_that_has_not_ended_can_be_rolled_back(state: State, event: Event) -> None:
    assert after(Place(state, 2), event, 5) == Place(State.ROLLED_BACK, 2)


def test_a_held_release_goes_on_by_hand_alone_and_is_still_rolled_back_by_itself() -> None:
    held = after(Place(State.RUNNING, 1), Event.UNDECIDED, 5)
    with pytest.raises(Conflict, match="is held"):
        after(held, Event.ADVANCE, 5)
    assert after(held, Event.RESUME, 5) == Place(State.RUNNING, 1)
    assert after(held, Event.PROMOTE, 5) == Place(State.RUNNING, 2)
    assert after(held, Event.FAIL, 5).state is State.ROLLED_BACK


@pytest.mark.parametrize("state", [State.PROMOTED, State.ROLLED_BACK])
@pytest.mark.parametrize("event", list(Event))
def test_nothing_happens_to_what_has_ended_but_a_promotion_can_be_undone(state: State, event: Event) -> None:
    if (state, event) == (State.PROMOTED, Event.ROLL_BACK):
        assert after(Place(state, 4), event, 5) == Place(State.ROLLED_BACK, 4)
        return
    with pytest.raises(Conflict):
        after(Place(state, 1), event, 5)


def test_a_promotion_is_undone_only_in_the_fleet_that_it_left() -> None:
    promoted = release(state=State.PROMOTED, stage=4)
    served = fleet_for(FLEET, promoted, "s")
    assert served.models[0].pool == "new"
    assert fleet_before(served, promoted, None) == FLEET
    assert fleet_before(served, promoted, "m-1").models[0].engine_model == "m-1"
    model = served.models[0]
    drained = msgspec.structs.replace(
        served, pools=tuple(msgspec.structs.replace(pool, replicas=()) for pool in served.pools)
    )
    for fleet, why in (
        (FLEET, "pool was changed from 'new' to 'old'"),
        (msgspec.structs.replace(served, models=()), "is gone"),
        (
            msgspec.structs.replace(served, models=(msgspec.structs.replace(model, canary=Canary("fresh")),)),
            "is split between pools",
        ),
        (drained, "'old' has no replica that takes load"),
    ):
        with pytest.raises(Conflict, match=why):
            fleet_before(fleet, promoted, None)


def test_a_split_keeps_the_secret_that_its_release_drew_first() -> None:
    """Else sessions would change sides in the middle."""
    running = release(state=State.RUNNING, stage=1)
    fleet = fleet_for(FLEET, running, "first")
    further = fleet_for(fleet, msgspec.structs.replace(running, stage=2), "second")
    assert [each.models[0].canary.salt for each in (fleet, further) if each.models[0].canary] == ["first", "first"]
    assert running.canary is not None
    assert running.canary.salt == "", "the release, which the API and the audit log show, does not have it"


def test_a_promoted_candidate_is_what_the_model_is_served_by() -> None:
    promoted = fleet_for(FLEET, release(state=State.PROMOTED, stage=4), "s").models[0]
    assert (promoted.pool, promoted.engine_model, promoted.canary) == ("new", "m-2", None)
    assert promoted.aliases == MODEL.aliases


def test_a_change_by_another_hand_is_told() -> None:
    running = release(state=State.RUNNING, stage=2)
    fleet = fleet_for(FLEET, running, "s")
    assert why_lost(fleet, running) is None

    def with_model(**changed: object) -> DesiredState:
        model = msgspec.structs.replace(fleet.models[0], **changed)
        return msgspec.structs.replace(fleet, models=(model, *fleet.models[1:]))

    def without_pool(name: str) -> DesiredState:
        return msgspec.structs.replace(fleet, pools=tuple(pool for pool in fleet.pools if pool.name != name))

    changed = {
        "model 'm' is gone": msgspec.structs.replace(fleet, models=fleet.models[1:]),
        "split was changed": with_model(canary=None),
        "pool was changed": with_model(pool="fresh"),
        "candidate pool 'new' is gone": without_pool("new"),
    }
    for said, state in changed.items():
        assert said in (why_lost(state, running) or "")
    assert why_lost(with_model(default_max_tokens=99), running) is None, "what does not touch the split may be edited"


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_requests_are_copied_in_every_stage_before_all_traffic(stage: int) -> None:
    running = release(state=State.RUNNING, stage=stage)
    canary = fleet_for(FLEET, running, "s").models[0].canary
    assert canary is not None
    assert (canary.share, canary.shadow_share, canary.control) == (STAGES[stage], running.shadow_share, stage > 0)
    assert running.shadow_share > 0


@pytest.mark.parametrize(("stage", "goes_on"), [(0, False), (2, True)])
def test_a_split_of_a_version_that_copied_in_the_shadow_stage_alone_goes_on(stage: int, goes_on: bool) -> None:
    running = release(state=State.RUNNING, stage=stage)
    fleet = fleet_for(FLEET, running, "s")
    model = fleet.models[0]
    assert model.canary is not None
    old = msgspec.structs.replace(model, canary=msgspec.structs.replace(model.canary, shadow_share=0.0))
    found = msgspec.structs.replace(fleet, models=(old, *fleet.models[1:]))
    assert (why_lost(found, running) is None) is goes_on
    following = release(state=State.RUNNING, stage=3)
    canary = fleet_for(found, following, "t").models[0].canary
    assert canary is not None
    assert (canary.shadow_share, canary.salt) == (running.shadow_share, "s")


def test_what_an_ended_release_left_is_removed_and_another_hands_split_stays() -> None:
    running = release(state=State.RUNNING, stage=2)
    fleet = fleet_for(FLEET, running, "s")
    assert without_splits_of(fleet, frozenset({str(running.id)})) == FLEET
    assert without_splits_of(fleet, frozenset({"another"})) == fleet
    assert fleet_for(fleet, release(id=running.id, state=State.ROLLED_BACK), "s") == FLEET
