"""Edits of the fleet: whatever is asked in whatever order, the state contradicts nothing, and what is refused changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.desired_state import Canary, DesiredState, Model, Pool, Replica
from contracts.errors import Conflict, InvalidField, NotFound, RequestError
from contracts.generation import Tier
from control.fleet import edits
from control.fleet.difference import differences
from control.fleet.revision import digest_of
from gateway.desired import document
from tests.examples import examples


def replica(name: str, weight: float = 1.0) -> Replica:
    return Replica(name, f"http://{name}:1", weight)


def model(name: str, pool: str, *aliases: str, canary: Canary | None = None) -> Model:
    return Model(name, Tier.CHAT, pool, 4_096, aliases, canary=canary)


STATE = DesiredState(
    3,
    (model("large", "blue", "chat"), model("small", "green")),
    (Pool("blue", "sglang", (replica("b0"), replica("b1"))), Pool("green", "openai", (replica("g0"),))),
)
IN_RELEASE = msgspec.structs.replace(
    STATE,
    models=(model("large", "blue", "chat", canary=Canary("green", 0.05, release="r1")), model("small", "green")),
)

Names = st.sampled_from(["large", "small", "chat", "third", "blue", "green", "b0", "b1", "g0", "", "a\nb"])
Replicas = st.builds(replica, Names, st.sampled_from([0.0, 1.0]))
Canaries = st.none() | st.builds(Canary, Names)
Models = st.builds(lambda name, pool, aliases, canary: model(name, pool, *aliases, canary=canary), Names, Names,
                   st.lists(Names, max_size=2), Canaries)  # fmt: skip
Pools = st.builds(lambda name, replicas: Pool(name, "openai", tuple(replicas)), Names, st.lists(Replicas, max_size=2))
Force = st.fixed_dictionaries({}, optional={"force": st.booleans()})


def asked(edit: Callable[..., DesiredState], *arguments: st.SearchStrategy[Any], named: Any = None) -> Any:
    return st.tuples(st.just(edit), st.tuples(*arguments), st.just({}) if named is None else named)


ANY_EDIT = st.one_of(
    asked(edits.put_model, Models, named=Force),
    asked(edits.add_model, Models, Pools, named=Force),
    asked(edits.remove_model, Names, named=Force),
    asked(edits.put_alias, Names, Names),
    asked(edits.remove_alias, Names),
    asked(edits.put_pool, Pools, named=Force),
    asked(edits.remove_pool, Names),
    asked(edits.put_replica, Names, Replicas, named=Force),
    asked(edits.remove_replica, Names, Names, named=Force),
    asked(edits.set_weight, Names, Names, st.sampled_from([0.0, 0.5, -1.0, float("nan")]), named=Force),
    asked(edits.restore, st.sampled_from([STATE, IN_RELEASE]), named=Force),
)


def served(state: DesiredState, name: str) -> bool:
    serving = {pool.name for pool in state.pools if any(each.weight > 0 for each in pool.replicas)}
    found = state.model(name)
    return found is None or edits.pools_of(found) <= serving


@examples(nightly=400)
@given(st.lists(ANY_EDIT, max_size=8))
def test_any_sequence_of_edits_leaves_a_state_that_contradicts_nothing(drawn: list[Any]) -> None:
    state = STATE
    for edit, arguments, named in drawn:
        before = msgspec.json.encode(state)
        try:
            after = edit(state, *arguments, **named)
        except RequestError as error:
            assert error.message.endswith((".", "`"))
            after = state
        else:
            after.check()
            if not named.get("force"):
                assert all(served(after, each.name) for each in after.models if served(state, each.name))
        assert msgspec.json.encode(state) == before
        assert document.decode(3, document.encode(after.models, after.pools)) == after
        assert bool(differences(state, after)) == (digest_of(state) != digest_of(after))
        state = after


def test_an_alias_moves_in_one_version_and_names_a_model_all_the_time() -> None:
    after = edits.put_alias(STATE, "chat", "small")
    assert [each.aliases for each in after.models] == [(), ("chat",)]
    assert edits.put_alias(after, "chat", "small") is after
    assert edits.remove_alias(after, "chat").model("chat") is None


@pytest.mark.parametrize(
    ("edit", "error", "said"),
    [
        (lambda: edits.put_model(STATE, model("third", "blue", "chat")), Conflict, "alias of the model 'large'"),
        (lambda: edits.put_model(STATE, model("third", "red")), InvalidField, "pools: blue, green"),
        (lambda: edits.put_model(STATE, model("third", "blue", "third")), InvalidField, "used twice"),
        (lambda: edits.remove_model(STATE, "chat"), NotFound, "an alias of 'large'"),
        (lambda: edits.remove_model(STATE, "larg"), NotFound, "Did you mean 'large'"),
        (lambda: edits.remove_model(edits.remove_model(STATE, "small"), "large"), Conflict, "the only model"),
        (lambda: edits.put_alias(STATE, "small", "large"), Conflict, "name of a model"),
        (lambda: edits.remove_alias(STATE, "small"), NotFound, "There are: chat"),
        (lambda: edits.remove_pool(STATE, "green"), Conflict, "serves small"),
        (lambda: edits.remove_pool(IN_RELEASE, "green"), Conflict, "serves large, small"),
        (lambda: edits.put_replica(STATE, "green", replica("b0")), Conflict, "of the pool 'blue'"),
        (lambda: edits.remove_replica(STATE, "green", "g0"), Conflict, "Nothing would serve 'small'"),
        (lambda: edits.set_weight(STATE, "green", "g0", 0), Conflict, "Nothing would serve 'small'"),
        (lambda: edits.set_weight(STATE, "green", "g0", -1), InvalidField, "0 or more"),
        (lambda: edits.set_weight(STATE, "green", "b0", 1), NotFound, "There are: g0"),
        (lambda: edits.put_pool(STATE, Pool("green", "openai")), Conflict, "Nothing would serve 'small'"),
        (lambda: edits.remove_model(IN_RELEASE, "large"), Conflict, "release r1"),
        (lambda: edits.put_model(IN_RELEASE, model("large", "blue", "chat")), Conflict, "release r1"),
        (lambda: edits.restore(IN_RELEASE, STATE), Conflict, "release r1"),
    ],
)
def test_what_would_break_is_refused_and_says_what_to_do(
    edit: Callable[[], DesiredState], error: type[RequestError], said: str
) -> None:
    with pytest.raises(error, match=said):
        edit()


def test_force_empties_what_serves() -> None:
    assert edits.remove_replica(STATE, "green", "g0", force=True).pools[1].replicas == ()
    assert edits.set_weight(STATE, "green", "g0", 0, force=True).pools[1].replicas[0].weight == 0


def test_a_model_in_a_release_may_change_in_what_the_release_does_not_arrange() -> None:
    large = edits.find_model(IN_RELEASE, "large")
    after = edits.put_model(IN_RELEASE, replace(large, default_max_tokens=64))
    assert edits.find_model(after, "large").canary == large.canary


def test_restoring_does_not_bring_an_ended_release_back() -> None:
    restored = edits.restore(STATE, IN_RELEASE)
    assert (restored.models, restored.pools) == (STATE.models, STATE.pools)


def test_differences_name_what_changed() -> None:
    after = edits.set_weight(edits.put_alias(STATE, "quick", "small"), "blue", "b1", 0)
    after = edits.remove_replica(after, "blue", "b0", force=True)
    assert differences(STATE, after) == [
        'model small: aliases [] -> ["quick"]',
        "replica b0 of blue: removed",
        "replica b1 of blue: weight 1.0 -> 0.0",
    ]


@pytest.mark.parametrize("name", ["a/b", "/", "..", "."])
def test_names_that_no_path_could_reach_are_refused(name: str) -> None:
    for pool in (Pool(name, "openai"), Pool("fine", "openai", (Replica(name, "http://fine"),))):
        with pytest.raises(InvalidField, match="must not contain '/'"):
            edits.put_pool(STATE, pool)
    with pytest.raises(InvalidField, match="must not contain '/'"):
        edits.put_replica(STATE, STATE.pools[0].name, Replica(name, "http://fine"))
