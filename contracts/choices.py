"""Describes the allowed values of a struct's field for error messages, as a list or as a pattern in words."""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

_STEP = re.compile(r"\[[^][]*\]|[^.\[\]]+")


def choices(kind: Any, path: str) -> list[str]:
    """The values of the enumeration, literal or tag at `path`, or the keys of the map there, in the order of their
    declaration; empty if the field has none of these or does not exist.

    kind: the decoded type. path: the field as msgspec reports it, without its `$.`: `messages[0].role`; `[...]` is a
    map's key.
    """
    found = [each for annotation in _at(kind, path) for each in _alternatives(annotation)]
    return list(dict.fromkeys(value for each in found for value in _values(each)))


def pattern_in_words(kind: Any, path: str) -> str:
    """The pattern of the text at `path` in words: the `description` next to it, such as "an e-mail address"; empty if
    it has none. kind, path: see `choices`."""
    metas = (meta for annotation in _at(kind, path) for meta in _metas(annotation))
    return next((meta.description for meta in metas if meta.pattern and meta.description), "")


def value_type(kind: Any, field: str) -> Any:
    """The type of the values of a field's map; None if the field is not a map. kind: a struct."""
    maps = [each for annotation in _at(kind, field) for each in _alternatives(annotation) if get_origin(each) is dict]
    return get_args(maps[0])[1] if maps else None


def _at(kind: Any, path: str) -> list[Any]:
    """The annotations at the end of a path."""
    found = [kind]
    for step in _STEP.finditer(path):
        if not found:
            return []
        found = [at for annotation in found for each in _alternatives(annotation) for at in _inside(each, step[0])]
    return found


def _metas(annotation: Any) -> Iterator[msgspec.Meta]:
    """The constraints on the types of an annotation."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from (meta for meta in annotation.__metadata__ if isinstance(meta, msgspec.Meta))
    if origin in (Annotated, Union, types.UnionType):
        for argument in get_args(annotation)[: 1 if origin is Annotated else None]:
            yield from _metas(argument)


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types that a union consists of, without their constraints."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from _alternatives(argument)
    else:
        yield annotation


def _inside(kind: Any, step: str) -> Iterator[Any]:
    """The annotations that a step leads to: a field, the tag of a union, or an element."""
    if step.startswith("["):
        arguments = [each for each in get_args(kind) if each is not Ellipsis]
        if get_origin(kind) in (list, tuple, set, frozenset, dict) and arguments:
            yield arguments[-1]
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        if config.tag_field == step:
            yield Literal[config.tag]
        yield from (field.type for field in msgspec.structs.fields(kind) if field.encode_name == step)


def _values(kind: Any) -> list[str]:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [str(member.value) for member in kind]
    if get_origin(kind) is dict:
        return [value for each in _alternatives(get_args(kind)[0]) for value in _values(each)]
    return [str(value) for value in get_args(kind)] if get_origin(kind) is Literal else []
