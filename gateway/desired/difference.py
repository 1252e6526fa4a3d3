"""What differs between two fleets, as lines that people read: `model chat: pool a -> b`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from contracts.desired_state import DesiredState, Pool

Named = Mapping[str, Any]


def differences(before: DesiredState, after: DesiredState) -> list[str]:
    """A line for each model, field, pool and replica that differs; none when the two say the same."""
    return [
        *_between("model", {each.name: each for each in before.models}, {each.name: each for each in after.models}),
        *_between("pool", _without_replicas(before), _without_replicas(after)),
        *_between("replica", _replicas(before), _replicas(after)),
    ] or (["order"] if (before.models, before.pools) != (after.models, after.pools) else [])


def _between(what: str, before: Named, after: Named) -> Iterator[str]:
    for name in [each for each in before if each not in after]:
        yield f"{what} {name}: removed"
    for name, new in after.items():
        old = before.get(name)
        if old is None:
            yield f"{what} {name}: added"
        elif old != new:
            for field in new.__struct_fields__:
                was, now = getattr(old, field), getattr(new, field)
                if was != now:
                    yield f"{what} {name}: {field} {_told(was)} -> {_told(now)}"


def _without_replicas(state: DesiredState) -> dict[str, Pool]:
    return {pool.name: msgspec.structs.replace(pool, replicas=()) for pool in state.pools}


def _replicas(state: DesiredState) -> dict[str, Any]:
    return {f"{replica.id} of {pool.name}": replica for pool in state.pools for replica in pool.replicas}


def _told(value: object) -> str:
    """As JSON, without quotes around what is one word."""
    text = msgspec.json.encode(value).decode()
    return text[1:-1] if text.startswith('"') and len(text) > 2 and " " not in text else text
