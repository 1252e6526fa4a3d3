"""Differences between two fleets, as lines for people: `model chat: pool a -> b`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from contracts.desired_state import DesiredState, Pool
from contracts.printable import printable

Named = Mapping[str, Any]


class Difference(NamedTuple):
    """One difference. place: path to the field, such as `("model", "chat", "pool")`. line: text with both values."""

    place: tuple[str, ...]
    line: str


def differences(before: DesiredState, after: DesiredState) -> list[str]:
    """A line for each model, field, pool and replica that differs; none if both fleets are equal."""
    return [each.line for each in _differences(before, after)]


def undone(before: DesiredState, edited: DesiredState, after: DesiredState) -> list[str]:
    """A line for each difference of `edited` from `before` that `after` does not have."""
    changed = [each.place for each in _differences(edited, after)]

    def is_kept(place: tuple[str, ...]) -> bool:
        """Whether `after` has the difference; a change of an object covers its fields."""
        return not any(place[: len(other)] == other or other[: len(place)] == place for other in changed)

    return [each.line for each in _differences(before, edited) if not is_kept(each.place)]


def _differences(before: DesiredState, after: DesiredState) -> list[Difference]:
    return [
        *_between("model", {each.name: each for each in before.models}, {each.name: each for each in after.models}),
        *_between("pool", _without_replicas(before), _without_replicas(after)),
        *_between("replica", _replicas(before), _replicas(after)),
    ] or ([Difference(("order",), "order")] if (before.models, before.pools) != (after.models, after.pools) else [])


def _between(what: str, before: Named, after: Named) -> Iterator[Difference]:
    for name in [each for each in before if each not in after]:
        yield Difference((what, name), f"{what} {name}: removed")
    for name, new in after.items():
        old = before.get(name)
        if old is None:
            yield Difference((what, name), f"{what} {name}: added")
        elif old != new:
            for field in new.__struct_fields__:
                was, now = getattr(old, field), getattr(new, field)
                if was != now:
                    yield Difference((what, name, field), f"{what} {name}: {field} {_told(was)} -> {_told(now)}")


def _without_replicas(state: DesiredState) -> dict[str, Pool]:
    return {pool.name: msgspec.structs.replace(pool, replicas=()) for pool in state.pools}


def _replicas(state: DesiredState) -> dict[str, Any]:
    return {f"{replica.id} of {pool.name}": replica for pool in state.pools for replica in pool.replicas}


def _told(value: object) -> str:
    """The value as JSON, without quotes around a single word."""
    text = printable(msgspec.json.encode(value).decode())
    return text[1:-1] if text.startswith('"') and len(text) > 2 and " " not in text else text
