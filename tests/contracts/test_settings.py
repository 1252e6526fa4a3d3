"""The settings loader: wrong settings stop the start and say what would have been right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from contracts.errors import ConfigError
from contracts.settings import fields, load


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 8000
    """Where to listen."""
    ratio: float = 0.5


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    size: int = 1


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
        ("gateway = 3\n", "gateway"),
        ("[gateway\n", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Whole, write(tmp_path, text), {})
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.prot: unknown setting \(SLIPSTREAM_GATEWAY__PROT\)"):
        load(Whole, None, {"SLIPSTREAM_GATEWAY__PROT": "1"})


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        load(Whole, tmp_path / "absent.toml", {})


def test_lists_come_from_the_environment_as_json() -> None:
    assert load(Whole, None, {"SLIPSTREAM_ITEMS": '[{"name":"b","size":3}]'}).items == (Item("b", 3),)


def test_fields_are_listed_with_dotted_names() -> None:
    assert [name for name, _ in fields(Whole)] == ["gateway.port", "gateway.ratio", "items", "title"]
