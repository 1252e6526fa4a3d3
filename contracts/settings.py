"""Reads settings from a TOML file, then from environment variables that override it, into frozen structs.

`SLIPSTREAM_GATEWAY__PORT=9000` sets `gateway.port`. An unknown field, a value of the wrong type or out of range stops
the start with a message that names the field and the nearest known name. No other code in the project reads the
environment for settings.
"""

from __future__ import annotations

import difflib
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from contracts.choices import choices, pattern_in_words
from contracts.errors import ConfigError
from contracts.fixed import SINCE, is_fixed
from contracts.misfit import sentence_and_path

logger = logging.getLogger(__name__)
PREFIX = "SLIPSTREAM_"
_RENAMED = "%s (%s) has been renamed: write %s; the old name will be removed"
_FIXED = "%s (%s) is fixed at %s since %s; remove it"
_TYPES = re.compile(r"`(object|array|str)`")
_TYPE_NAMES = {"object": "a section", "array": "a list", "str": "text"}
_ALIKE = 0.7
"""Least similarity at which an unknown name counts as a typo of a known one."""
_INDEX = re.compile(r"\[\d+\]")
SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


def load(
    kind: type[SettingsT],
    path: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, Any] | None = None,
    renamed: Mapping[str, str] | None = None,
    overrides_from: str = "command line",
    instead: Mapping[str, str] | None = None,
    inherited: Mapping[str, str] | None = None,
) -> SettingsT:
    """Build `kind` from the file at `path` (None for no file), the environment and dotted `overrides`.

    Later sources win. Values for constants (`contracts.fixed`) are ignored with a warning. overrides_from: the source
    name of the overrides in messages. renamed: dotted names of earlier releases and their new names, `pools[].name` for
    a field of every entry of a list; an old name is accepted with one warning. instead: dotted names that never were
    settings, and the advice to print. inherited: sections of the entries of a list, `pools[].engine`, and the section
    that completes them. Raises ConfigError, which names the field, the value and the allowed range, or a setting that
    is given under both its old and its new name.
    """
    names, advice = _Renames(renamed or {}), instead or {}
    tree: dict[str, Any] = _read(path) if path is not None else {}
    overriding: list[tuple[str, str]] = []
    """Dotted name and source of each value that overrides the file, in order."""
    for old, new in names.new_of.items():
        if _has(tree, new):
            names.now(new, str(path))
        if _has(tree, old):
            _put(tree, names.now(old, str(path)), _take(tree, old), source=str(path))
    names.in_lists(tree, str(path))
    _drop_fixed(kind, tree, source=str(path))
    _reject_unknown(kind, tree, source=str(path), trail="", advice=advice)
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX):
            dotted = name[len(PREFIX) :].lower().replace("__", ".")
            _require_two_underscores(kind, name, dotted)
            _put(tree, current := names.now(dotted, name), _parse(text), source=name)
            overriding.append((current, name))
            names.in_lists(tree, name)
            _drop_fixed(kind, tree, source=name)
            _reject_unknown(kind, tree, source=name, trail="", advice=advice)
    for dotted, value in (overrides or {}).items():
        _put(tree, current := names.now(dotted, overrides_from), value, source=dotted)
        overriding.append((current, overrides_from))
    _reject_unknown(kind, tree, source=overrides_from, trail="", advice=advice)
    for section, ancestor in (inherited or {}).items():
        _inherit(tree, section, ancestor)
    try:
        # strict=False, because the environment has only text: "8000" must become an int
        return msgspec.convert(tree, kind, strict=False)
    except msgspec.ValidationError as error:
        message, field = sentence_and_path(str(error))
        field = field or "settings"
        allowed = choices(kind, field) if message.startswith("Invalid") else []
        value = _value_at(tree, field)
        if allowed and isinstance(value, Mapping):
            value = next((key for key in value if key not in allowed), value)
        if "matching regex" in message and (wanted := pattern_in_words(kind, field)):
            message = f"must be {wanted}"
        message = _TYPES.sub(_as_the_reference_says, message)
        problem = f"{value!r} is not one of: {', '.join(allowed)}" if allowed else f"{message}; got {value!r}"
        source = _source_of(field, overriding) or (str(path) if path is not None else "")
        raise ConfigError(f"{field}: {problem}{f' ({source})' if source else ''}", param=field) from None


def is_given(dotted: str, path: Path | None, environ: Mapping[str, str]) -> bool:
    """Whether the file or the environment sets this field, even to its default."""
    variable = PREFIX + dotted.upper().replace(".", "__")
    return variable in environ or (path is not None and _has(_read(path), dotted))


def fields(kind: type[msgspec.Struct], trail: str = "") -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    """Every setting of `kind` with its dotted name, nested structs expanded; the generated reference uses it."""
    for field in msgspec.structs.fields(kind):
        if is_fixed(field.type):
            continue
        inner = _struct(field.type)
        dotted = f"{trail}{field.encode_name}"
        if inner is not None and not _is_collection(field.type):
            yield from fields(inner, f"{dotted}.")
        else:
            yield dotted, field


def _as_the_reference_says(type_name: re.Match[str]) -> str:
    """The reference's name of a type, which msgspec calls by JSON's or Python's name."""
    return _TYPE_NAMES[type_name.group(1)]


class _Renames:
    """The name under which each renamed setting was given, over all sources. new_of: old dotted names to new ones."""

    def __init__(self, new_of: Mapping[str, str]) -> None:
        self.new_of = new_of
        self._given: dict[str, tuple[str, str]] = {}
        """For each new name, the name that was used and its source."""

    def now(self, dotted: str, source: str) -> str:
        """The current name of a setting. Raises ConfigError if the setting is given under its other name too."""
        new = self.new_of.get(dotted, dotted)
        if new not in self.new_of.values():
            return new
        before, where = self._given.setdefault(new, (dotted, source))
        if before != dotted:
            old = dotted if new == before else before
            raise ConfigError(
                f"{old}: renamed to {new}, and both are given ({where}; {source}); remove {old}", param=new
            )
        if dotted != new and (before, where) == (dotted, source):
            logger.warning(_RENAMED, dotted, source, new)
        return new

    def in_lists(self, tree: Mapping[str, Any], source: str) -> None:
        """Rename the fields of list entries. Raises ConfigError, like `now`, for an entry that has both names."""
        for old_name, new_name in self.new_of.items():
            section, in_list, old = old_name.partition("[].")
            entries, new = tree.get(section) if in_list else None, new_name.rpartition(".")[2]
            tables = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
            holders = [table for table in tables if old in table]
            for entry in holders:
                if new in entry:
                    raise ConfigError(
                        f"{old_name}: renamed to {new_name}, and both are given ({source}); remove {old}",
                        param=new_name,
                    )
                entry[new] = entry.pop(old)
            if holders:
                logger.warning(_RENAMED, old_name, source, new_name)


def _has(tree: Mapping[str, Any], dotted: str) -> bool:
    *parents, last = dotted.split(".")
    for parent in parents:
        section = tree.get(parent)
        if not isinstance(section, Mapping):
            return False
        tree = section
    return last in tree


def _take(tree: dict[str, Any], dotted: str) -> Any:
    *parents, last = dotted.split(".")
    for parent in parents:
        tree = tree[parent]
    return tree.pop(last)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the settings file: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.object[error.start]:#04x} at offset {error.start:,} is not UTF-8; save the settings "
            "file in UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _parse(text: str) -> Any:
    """JSON where the text is JSON for a list or an object, else the text itself."""
    if text[:1] in "[{":
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return text


def _put(tree: dict[str, Any], dotted: str, value: Any, source: str) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{source}: {parent} is a value, not a section")
    tree[last] = value


def _require_two_underscores(kind: type[msgspec.Struct], variable: str, dotted: str) -> None:
    """Raise ConfigError for a variable that would name a setting if it had two underscores in place of a dot."""
    known = {name.replace(".", "_"): name for name, _ in fields(kind)}
    meant = known.get(dotted.replace(".", "_"))
    if meant is not None and meant.count(".") > dotted.count("."):
        right = PREFIX + meant.upper().replace(".", "__")
        raise ConfigError(
            f"{variable}: unknown setting, did you mean {right}? Write two underscores between a section and its "
            "setting",
            param=meant,
        )


def _inherit(tree: dict[str, Any], heir: str, ancestor: str) -> None:
    """Complete the section `heir` of every entry that has it, `list[].section`, with the values of `ancestor` that it
    lacks."""
    name, _, section = heir.partition("[].")
    entries = tree.get(name)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(own := entry.get(section), dict):
            entry[section] = _over(tree.get(ancestor), own)


def _over(below: Any, above: Any) -> Any:
    """`above` in place of `below`, but two sections are merged field by field."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{name: _over(below.get(name), value) for name, value in above.items()}}


def _reject_unknown(
    kind: type[msgspec.Struct], tree: Mapping[str, Any], source: str, trail: str, advice: Mapping[str, str]
) -> None:
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, value in tree.items():
        field = known.get(name)
        if field is None:
            if (advised := advice.get(_INDEX.sub("[]", f"{trail}{name}"))) is not None:
                raise ConfigError(f"{trail}{name}: unknown setting ({source}); {advised}", param=f"{trail}{name}")
            nearest = difflib.get_close_matches(name, known, 1, _ALIKE)
            hint = f", did you mean {trail}{nearest[0]}?" if nearest else f"; known: {', '.join(sorted(known))}"
            raise ConfigError(f"{trail}{name}: unknown setting ({source}){hint}", param=f"{trail}{name}")
        inner = _struct(field.type)
        if inner is None:
            continue
        entries = value if isinstance(value, list) and _is_collection(field.type) else [value]
        for index, entry in enumerate(entries):
            if isinstance(entry, Mapping):
                step = f"{trail}{name}[{index}]." if isinstance(value, list) else f"{trail}{name}."
                _reject_unknown(inner, entry, source, step, advice)


def _drop_fixed(kind: type[msgspec.Struct], tree: dict[str, Any], source: str, trail: str = "") -> None:
    """Remove constants from the tree with one warning each, so that a start after an upgrade succeeds."""
    for field in msgspec.structs.fields(kind):
        value, name = tree.get(field.encode_name), f"{trail}{field.encode_name}"
        if value is None:
            continue
        inner = _struct(field.type)
        if is_fixed(field.type):
            tree.pop(field.encode_name)
            _warn_of_fixed(inner, value, name, source, field.default)
            continue
        entries = value if isinstance(value, list) and _is_collection(field.type) else [value]
        for index, entry in enumerate(entries):
            if inner is not None and isinstance(entry, dict):
                step = f"{name}[{index}]." if isinstance(value, list) else f"{name}."
                _drop_fixed(inner, entry, source, step)


def _warn_of_fixed(inner: type[msgspec.Struct] | None, value: Any, name: str, source: str, default: Any) -> None:
    if inner is None or not isinstance(value, Mapping):
        logger.warning(_FIXED, name, source, default, SINCE)
        return
    defaults = {field.encode_name: field.default for field in msgspec.structs.fields(inner)}
    for field_name, entry in value.items():
        _warn_of_fixed(None, entry, f"{name}.{field_name}", source, defaults.get(field_name, "its value"))


def _struct(annotation: Any) -> type[msgspec.Struct] | None:
    """The struct type inside an annotation (itself, Optional, or the element of a tuple or list), if any."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    for argument in get_args(annotation):
        found = _struct(argument)
        if found is not None:
            return found
    return None


def _is_collection(annotation: Any) -> bool:
    origin = getattr(annotation, "__origin__", None)
    return origin in (tuple, list)


def _source_of(field: str, overriding: list[tuple[str, str]]) -> str:
    """The source that overrides the file's value of `field`; empty if none does."""
    sources = (source for dotted, source in reversed(overriding) if re.match(rf"{re.escape(dotted)}(?![^.\[])", field))
    return next(sources, "")


def _value_at(tree: Any, dotted: str) -> Any:
    for step in dotted.replace("[", ".[").split("."):
        try:
            tree = tree[int(step[1:-1])] if step.startswith("[") else tree[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return tree
