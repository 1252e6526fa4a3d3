"""The settings loader: wrong settings stop the start and say what would have been right."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from contracts.errors import ConfigError
from contracts.fixed import SINCE, Fixed
from contracts.settings import fields, load
from slipstream import toml


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 8000
    """Where to listen."""
    ratio: float = 0.5


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    size: int = 1
    colour: Colour | None = None
    edge: Literal["sharp", "round"] = "sharp"
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$", description="three capitals, such as EUR")] | None = None


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gateway: Inner = Inner()
    items: tuple[Item, ...] = ()
    title: str = "x"


def write(folder: Path, text: str) -> Path:
    path = folder / "slipstream.toml"
    path.write_text(text)
    return path


def test_file_then_environment_then_command_line(tmp_path: Path) -> None:
    path = write(tmp_path, 'title = "file"\n[gateway]\nport = 1000\nratio = 0.25\n[[items]]\nname = "a"\n')
    environ = {"SLIPSTREAM_GATEWAY__PORT": "2000", "SLIPSTREAM_TITLE": "env", "OTHER": "x"}
    whole = load(Whole, path, environ, {"title": "flag"})
    assert whole == Whole(gateway=Inner(port=2000, ratio=0.25), items=(Item("a"),), title="flag")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gateway]\nprot = 1\n", "gateway.prot: unknown setting"),
        ("[gateway]\nprot = 1\n", "did you mean gateway.port?"),
        ("[gatway]\n", "did you mean gateway?"),
        ("[[items]]\nname = 'a'\nsise = 2\n", "items[0].sise: unknown setting"),
        ("[gateway]\nport = 70000\n", "gateway.port: Expected `int` <= 65535; got 70000"),
        ("[gateway]\nport = 'http'\n", "gateway.port"),
        ("[[items]]\nsize = 2\n", "items[0]"),
        ("gateway = 3\n", "gateway: Expected a section, got `int`; got 3"),
        ("items = 3\n", "items: Expected a list, got `int`; got 3"),
        ("[[items]]\nname = 'a'\ncode = 'euro'\n", "items[0].code: must be three capitals, such as EUR; got 'euro'"),
        ("[[items]]\nname = 'a'\nsecret = 'x'\n", "items[0].secret: unknown setting ("),
        ("[[items]]\nname = 'a'\nsecret = 'x'\n", "; it stands in a file of its own"),
        ("[gateway]\nparts = 1\n", "known: port, ratio"),
        ("[[items]]\nname = 'a'\ncolour = 'Red'\n", "items[0].colour: 'Red' is not one of: red, blue"),
        ("[[items]]\nname = 'a'\nedge = 'Sharp'\n", "items[0].edge: 'Sharp' is not one of: sharp, round"),
        ("[gateway\n", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Whole, write(tmp_path, text), {}, instead={"items[].secret": "it stands in a file of its own"})
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(("encoding", "byte"), [("latin-1", "0xe9 at offset 5"), ("utf-16", "0xff at offset 0")])
def test_a_file_that_is_not_utf_8_is_one_clear_line(tmp_path: Path, encoding: str, byte: str) -> None:
    path = write(tmp_path, "")
    path.write_bytes("# caf\u00e9\n".encode(encoding))
    with pytest.raises(ConfigError, match=f"byte {byte} is not UTF-8; save the settings file in UTF-8"):
        load(Whole, path, {})


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.prot: unknown setting \(SLIPSTREAM_GATEWAY__PROT\)"):
        load(Whole, None, {"SLIPSTREAM_GATEWAY__PROT": "1"})


def test_a_wrong_value_is_named_with_where_it_came_from(tmp_path: Path) -> None:
    path = write(tmp_path, "[gateway]\nport = 1\nratio = 'wide'\n")
    said = r"^gateway\.{}: Expected .*; got {} \({}\)$"
    with pytest.raises(ConfigError, match=said.format("ratio", "'wide'", re.escape(str(path)))):
        load(Whole, path, {"SLIPSTREAM_GATEWAY__PORT": "2"})
    with pytest.raises(ConfigError, match=said.format("port", "'70000'", "SLIPSTREAM_GATEWAY__PORT")):
        load(Whole, write(tmp_path, "[gateway]\nport = 1\n"), {"SLIPSTREAM_GATEWAY__PORT": "70000"})
    with pytest.raises(ConfigError, match=said.format("port", "70000", "command line")):
        load(Whole, None, {"SLIPSTREAM_GATEWAY__PORT": "1"}, {"gateway.port": 70_000})
    with pytest.raises(ConfigError, match=r"'Sharp' is not one of: sharp, round \(SLIPSTREAM_ITEMS\)$"):
        load(Whole, path, {"SLIPSTREAM_ITEMS": '[{"name":"a","edge":"Sharp"}]', "SLIPSTREAM_GATEWAY__RATIO": "0"})


def test_a_variable_with_one_underscore_too_few_is_shown_with_two() -> None:
    with pytest.raises(ConfigError, match=r"SLIPSTREAM_GATEWAY_PORT: .* did you mean SLIPSTREAM_GATEWAY__PORT"):
        load(Whole, None, {"SLIPSTREAM_GATEWAY_PORT": "1"})


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        load(Whole, tmp_path / "absent.toml", {})


def test_lists_come_from_the_environment_as_json() -> None:
    assert load(Whole, None, {"SLIPSTREAM_ITEMS": '[{"name":"b","size":3}]'}).items == (Item("b", 3),)


def test_fields_are_listed_with_dotted_names() -> None:
    assert [name for name, _ in fields(Whole)] == ["gateway.port", "gateway.ratio", "items", "title"]


RENAMED = {"gateway.listen": "gateway.port", "name": "title"}


@pytest.mark.parametrize(
    ("text", "environ", "overrides"),
    [
        ("[gateway]\nlisten = 9\n", {}, {}),
        ("", {"SLIPSTREAM_GATEWAY__LISTEN": "9"}, {}),
        ("", {}, {"gateway.listen": 9}),
        ("[gateway]\nlisten = 7\n", {"SLIPSTREAM_GATEWAY__LISTEN": "8"}, {"gateway.listen": 9}),
    ],
)
def test_an_old_name_is_taken_and_named_once_with_the_new_one(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    text: str,
    environ: dict[str, str],
    overrides: dict[str, object],
) -> None:
    assert load(Whole, write(tmp_path, text), environ, overrides, RENAMED) == Whole(gateway=Inner(port=9))
    [record] = caplog.records
    assert "gateway.listen" in record.getMessage()
    assert "gateway.port" in record.getMessage()


@pytest.mark.parametrize(
    ("text", "environ", "overrides"),
    [
        ("[gateway]\nlisten = 9\nport = 9\n", {}, {}),
        ("[gateway]\nlisten = 9\n", {"SLIPSTREAM_GATEWAY__PORT": "9"}, {}),
        ("[gateway]\nport = 9\n", {"SLIPSTREAM_GATEWAY__LISTEN": "9"}, {}),
        ("", {"SLIPSTREAM_GATEWAY__LISTEN": "9"}, {"gateway.port": 9}),
    ],
)
def test_both_names_of_one_setting_stop_the_start(
    tmp_path: Path, text: str, environ: dict[str, str], overrides: dict[str, object]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Whole, write(tmp_path, text), environ, overrides, RENAMED)
    assert "gateway.listen: renamed to gateway.port, and both are given" in str(caught.value)
    assert "remove gateway.listen" in str(caught.value)


def test_new_names_and_settings_never_renamed_are_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, 'title = "file"\n[gateway]\nport = 9\nratio = 0.25\n')
    environ = {"SLIPSTREAM_GATEWAY__PORT": "10"}
    assert load(Whole, path, environ, {}, RENAMED) == Whole(gateway=Inner(port=10, ratio=0.25), title="file")
    assert not caplog.records


def test_a_wrong_value_under_an_old_name_is_told_by_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.port: .* got 70000"):
        load(Whole, write(tmp_path, "[gateway]\nlisten = 70000\n"), {}, None, RENAMED)


class Entry(msgspec.Struct, frozen=True):
    size: int = 0


class WithEntries(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...] = ()


IN_ENTRIES = {"entries[].length": "entries[].size"}


def test_an_old_name_in_the_entries_of_a_list_is_taken_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "[[entries]]\nlength = 1\n[[entries]]\nsize = 2\n[[entries]]\nlength = 3\n")
    assert load(WithEntries, path, {}, {}, IN_ENTRIES) == WithEntries((Entry(1), Entry(2), Entry(3)))
    assert [record.args for record in caplog.records] == [("entries[].length", str(path), "entries[].size")]


def test_an_old_name_in_a_list_from_the_environment_is_taken_too() -> None:
    environ = {"SLIPSTREAM_ENTRIES": '[{"length": 4}]'}
    assert load(WithEntries, None, environ, {}, IN_ENTRIES) == WithEntries((Entry(4),))


def test_an_entry_with_both_names_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "[[entries]]\nlength = 1\nsize = 1\n")
    with pytest.raises(ConfigError, match=r"entries\[\]\.length: renamed to entries\[\]\.size, and both are given"):
        load(WithEntries, path, {}, {}, IN_ENTRIES)


@pytest.mark.parametrize("text", ["round - at `$.whole", "round - at `$.items[0].edge`", "A - at `$." + "[" * 20_000])
def test_a_value_that_holds_a_path_is_refused_by_its_own_name(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Whole, None, {"SLIPSTREAM_ITEMS": msgspec.json.encode([{"edge": text}]).decode()}, {})
    assert caught.value.param == "items[0].edge"
    assert caught.value.message.endswith("is not one of: sharp, round (SLIPSTREAM_ITEMS)")


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    poll_s: float = 1.5
    beat_s: float = 0.25


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = "a"
    least: Fixed[Annotated[int, msgspec.Meta(ge=1)]] = 3


class WithConstants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    part: Part = Part()
    parts: tuple[Part, ...] = ()
    timing: Fixed[Timing] = Timing()


def test_a_constant_in_a_file_or_a_variable_is_left_out_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "[part]\nname = 'b'\nleast = 0\n[[parts]]\nname = 'c'\nleast = 9\n[timing]\npoll_s = 9\n")
    loaded = load(WithConstants, path, {"SLIPSTREAM_TIMING__BEAT_S": "7"})
    assert loaded == WithConstants(part=Part("b"), parts=(Part("c"),))
    assert [record.getMessage() for record in caplog.records] == [
        f"part.least ({path}) is fixed at 3 since {SINCE}; remove it",
        f"parts[0].least ({path}) is fixed at 3 since {SINCE}; remove it",
        f"timing.poll_s ({path}) is fixed at 1.5 since {SINCE}; remove it",
        f"timing.beat_s (SLIPSTREAM_TIMING__BEAT_S) is fixed at 0.25 since {SINCE}; remove it",
    ]
    assert [name for name, _ in fields(WithConstants)] == ["part.name", "parts"]


def test_a_program_sets_a_constant_and_does_not_write_it_down() -> None:
    shortened = WithConstants(part=Part("b", least=9), timing=Timing(poll_s=0.1))
    assert toml.dump(shortened) == 'parts = []\n\n[part]\nname = "b"\n'
