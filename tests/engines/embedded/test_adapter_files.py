"""An adapter's folder is made by a tenant: whatever lies in it, the engine reads no file of others, waits for none, and
holds no more in memory than an adapter has."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from safetensors.torch import load_file, save_file

from contracts.errors import ConfigError, InvalidField
from engines.embedded.config import LoraConfig
from engines.embedded.lora.adapter_files import AdapterFiles
from engines.embedded.lora.adapters import Adapters
from engines.embedded.lora.load import MAX_HEADER_BYTES, load_adapter
from engines.embedded.models.llama import Llama
from engines.embedded.models.registry import load_model
from tests.engines.embedded.peft_folder import write_adapter
from tests.engines.embedded.tiny import finish, make_engine, request, text

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Llama:
    return load_model(tiny_model, "float32")


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Path) -> Path:
    return write_adapter(tmp_path / "tenants" / "acme", tiny_model, projections=("q_proj",))


def refused(model: Llama, folder: Path, root: str = "") -> InvalidField:
    with pytest.raises(InvalidField) as error:
        load_adapter(model, "a", folder, 64, 1, root)
    return error.value


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
@pytest.mark.parametrize("by", ["file", "folder above", "device"])
def test_a_link_out_of_the_folder_is_not_followed(
    model: Llama, folder: Path, tiny_model: Path, name: str, by: str
) -> None:
    theirs = write_adapter(folder.parent / "other", tiny_model, projections=("q_proj",), seed=7)
    target = {"file": theirs / name, "folder above": Path("..") / "other" / name, "device": Path("/dev/zero")}[by]
    (folder / name).unlink()
    (folder / name).symlink_to(target)
    error = refused(model, folder)
    assert (error.param, "leads elsewhere" in error.message) == (name, True)


def test_what_lies_under_the_root_may_be_linked_and_nothing_else_is_an_adapter(
    model: Llama, folder: Path, tmp_path: Path
) -> None:
    """As in the cache of Hugging Face: a snapshot of links to blobs."""
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    (folder / WEIGHTS).rename(blobs / "1")
    (folder / WEIGHTS).symlink_to("../blobs/1")
    assert refused(model, folder).param == WEIGHTS
    assert load_adapter(model, "a", folder, 64, 1, str(folder.parent)).rank == 4
    (tmp_path / "linked root").symlink_to(folder.parent)
    assert load_adapter(model, "a", tmp_path / "linked root" / "acme", 64, 1, str(folder.parent)).rank == 4
    for path in (folder / ".." / ".." / "elsewhere", folder.parent.with_name("tenants-of-others"), tmp_path):
        path.mkdir(exist_ok=True)
        assert refused(model, path, str(folder.parent)).param == "lora_path"
    outside = write_adapter(tmp_path / "outside", tmp_path, weights={})
    (folder.parent / "inside").symlink_to(outside)
    assert refused(model, folder.parent / "inside", str(folder.parent)).param == "lora_path"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
@pytest.mark.parametrize("make", [pipe, listener, directory])
def test_only_plain_files_are_read(
    model: Llama, folder: Path, name: str, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)  # a socket's name is short
    (folder / name).unlink()
    make(folder / name)
    assert refused(model, folder).param == name


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_file_larger_than_an_adapter_is_not_read_to_its_end(model: Llama, folder: Path, name: str) -> None:
    with (folder / name).open("r+b") as file:
        file.truncate(1 << 40)  # a hole: it takes no room on the disk
    error = refused(model, folder)
    assert (error.param, "must have at most" in error.message) == (name, True)
    assert f"{1 << 40:,}" in error.message


@pytest.mark.parametrize("header_bytes", [MAX_HEADER_BYTES + 1, 99_000_000, 2**63, 2**64 - 1])
def test_a_header_that_is_no_adapters_is_not_parsed(model: Llama, folder: Path, header_bytes: int) -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", header_bytes) + b"{" * 100)
    error = refused(model, folder)
    assert "header must have at most" in error.message


def of_header(header: object, data: bytes = b"") -> bytes:
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        struct.pack("<Q", 100) + b"{}",
        of_header([]),
        of_header({NAME: {**ONE, "dtype": "F8_E8M0", "shape": [4]}}, b"abcd"),
        of_header({NAME: {**ONE, "dtype": "none"}}, b"abcd"),
        of_header({NAME: {**ONE, "shape": [2**62, 2**62]}}, b"abcd"),
        of_header({NAME: {**ONE, "data_offsets": [0, 2**40]}}, b"abcd"),
        of_header({NAME: {**ONE, "data_offsets": [4, 0]}}, b"abcd"),
        of_header({NAME: ONE, NAME + "2": ONE}, b"abcd"),
        of_header({f"{number}": {**ONE, "shape": [0], "data_offsets": [0, 0]} for number in range(30_000)}),
        struct.pack("<Q", 200_000) + b"[" * 200_000,
    ],
    ids=range(12),
)
def test_a_broken_file_of_weights_is_refused_by_name(model: Llama, folder: Path, content: bytes) -> None:
    (folder / WEIGHTS).write_bytes(content)
    assert str(folder / WEIGHTS) in refused(model, folder).message


def test_weights_outlive_their_file(folder: Path, tiny_model: Path) -> None:
    """A mapped file that is cut short would end the process at the next touch."""
    engine = make_engine(tiny_model)
    adapter = load_adapter(engine.model, "a", folder, 64, 1)

    def said(rid: str) -> str:
        asked = request(rid, range(300, 340), speculate=False)
        return text(finish(engine, msgspec.structs.replace(asked, adapter=adapter))[rid, 0])

    before = said("1")
    (folder / WEIGHTS).write_bytes(b"")
    shutil.rmtree(folder)
    assert said("2") == before


def test_a_file_that_is_exchanged_meanwhile_is_read_as_it_was_looked_at(folder: Path) -> None:
    files, content = AdapterFiles(folder), (folder / WEIGHTS).read_bytes()
    save_file({name: value + 1 for name, value in load_file(folder / WEIGHTS).items()}, str(folder / "new"))
    assert files.read(WEIGHTS, len(content)) == content
    (folder / "new").rename(folder / WEIGHTS)
    assert files.read(WEIGHTS, len(content)) != content
    with pytest.raises(InvalidField, match="must have at most"):
        files.read(WEIGHTS, len(content) - 1)


@pytest.mark.parametrize("root", ["/nowhere/at-all", "models", "/etc/passwd"])
def test_a_root_that_is_no_folder_stops_the_start(root: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.lora\.root.*absolute path") as error:
        Adapters(LoraConfig(root=root), lambda _: False)
    assert repr(root) in error.value.message


@pytest.mark.parametrize("path", ["/nowhere/at-all", "/dev", "/proc/self", "bad\0path"])
def test_a_path_that_is_no_adapter_is_refused(model: Llama, path: str) -> None:
    assert refused(model, Path(path)).param in (CONFIG, "lora_path")
