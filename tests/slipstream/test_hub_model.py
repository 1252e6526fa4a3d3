"""Models by name from a server on this machine that speaks the Hugging Face Hub's API."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from contracts.errors import ConfigError
from infra.local.config import LocalConfig
from slipstream import hub_download
from slipstream.hub_model import is_hub_name, with_hub_models
from slipstream.settings import Settings
from tests.deployment import ROOT
from tests.serving import serving

NAME, COMMIT, TOKEN = "tiny/Tiny-1B", "a" * 40, "hf_secret"
FILES = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 96_000,  # the library writes 10 MB at a time
    "pytorch_model.bin": b"code",
}


class Hub:
    """One model. `files` are what it sends, and the list of files is made of FILES."""

    def __init__(self) -> None:
        self.files = dict(FILES)
        self.sizes: dict[str, int] = {}
        self.listed: tuple[str, ...] = ()
        """Names of further files."""
        self.cut_once = False
        self.token: str | None = None
        self.ranges: list[str] = []
        self.sent: list[str] = []
        self.application = web.Application()
        self.application.router.add_get("/api/models/{owner}/{name}", self._info)
        self.application.router.add_get("/{owner}/{name}/resolve/{commit}/{file:.+}", self._file)

    def _refuses(self, request: web.Request) -> web.Response | None:
        if f"{request.match_info['owner']}/{request.match_info['name']}" != NAME:
            return web.Response(status=404, headers={"X-Error-Code": "RepoNotFound"})
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return web.Response(status=403, headers={"X-Error-Code": "GatedRepo"})
        return None

    async def _info(self, request: web.Request) -> web.Response:
        if (refusal := self._refuses(request)) is not None:
            return refusal
        siblings = []
        for name, content in FILES.items():
            size = self.sizes.get(name, len(content))
            lfs = {"sha256": hashlib.sha256(content).hexdigest(), "size": size, "pointerSize": 130}
            large = name.endswith("safetensors")
            siblings.append({"rfilename": name, "size": size, "blobId": "b" * 40} | ({"lfs": lfs} if large else {}))
        siblings += [{"rfilename": name, "size": 1, "blobId": "b" * 40} for name in self.listed]
        return web.json_response({"id": NAME, "modelId": NAME, "sha": COMMIT, "siblings": siblings})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if (refusal := self._refuses(request)) is not None:
            return refusal
        name = request.match_info["file"]
        content = self.files[name]
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(FILES[name]).hexdigest()}"'}
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": str(len(content))})
        self.sent.append(name)
        start = 0
        if (asked := request.headers.get("range")) is not None:
            self.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        rest = content[start:]
        response = web.StreamResponse(
            status=206 if asked else 200, headers={**headers, "Content-Length": str(len(rest))}
        )
        await response.prepare(request)
        if self.cut_once and name == "model.safetensors":
            self.cut_once = False
            await response.write(rest[: len(rest) // 2])
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(rest)
        return response


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Hub]:
    made = Hub()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    async with serving(made.application) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield made


def settings(name: str = NAME) -> Settings:
    return Settings(local=msgspec.structs.replace(LocalConfig(), chat_model=name))


def contents(folder: Path) -> dict[str, bytes]:
    """All files in it."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def refusal(models: Path, name: str = NAME) -> str:
    """The message; nothing is left behind."""
    with pytest.raises(ConfigError) as caught:
        await with_hub_models(settings(name), models, lambda line: None)
    assert contents(models) == {}
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_path_or_a_shipped_model_is_no_name_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("Qwen/Qwen3-0.6B")
    (tmp_path / "Qwen").mkdir()
    (tmp_path / "Qwen" / "Qwen3-0.6B").mkdir()
    for name in ("Qwen/Qwen3-0.6B", "/models/x", "./a/b", "a/b/c", "slipstream-chat", "a/../b", None):
        assert not is_hub_name(name)


async def test_a_model_is_downloaded_once_and_goes_on_where_it_was_cut(hub: Hub, tmp_path: Path) -> None:
    hub.cut_once, hub.token = True, TOKEN
    said: list[str] = []
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HF_TOKEN", TOKEN)
        found = await with_hub_models(settings(), tmp_path / "models", said.append)
    folder = Path(found.local.chat_model or "")
    assert folder == tmp_path / "models" / "hub" / NAME
    wanted = {name: content for name, content in FILES.items() if name != "pytorch_model.bin"}
    assert contents(folder) == {**wanted, hub_download.DONE: f"{COMMIT}\n".encode()}
    assert len(hub.ranges) == 1
    assert hub.ranges != ["bytes=0-"]
    assert said[0] == f"fetching {NAME} (25 MB, once) from the Hugging Face Hub"
    hub.sent.clear()
    assert await with_hub_models(settings(), tmp_path / "models", said.append) == found
    assert hub.sent == []


async def test_every_refusal_is_one_line_and_leaves_nothing(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    assert "the Hub has no model no/such" in await refusal(models, "no/such")
    hub.token = TOKEN
    assert "accept their terms" in await refusal(models)
    hub.token = None
    hub.files["model.safetensors"] = b"x" + FILES["model.safetensors"][1:]
    assert "model.safetensors does not have the hash" in await refusal(models)
    hub.sizes["model.safetensors"] = 1 << 50
    assert "it has 1125899.9 GB, and this machine has" in await refusal(models)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert await refusal(models) == f"local.chat_model: {NAME} cannot be downloaded: {hub_download.UNREACHABLE}"


async def test_only_files_at_the_top_are_downloaded(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`model-*.safetensors` takes slashes too."""
    hub.listed = ("model-/../../../escaped.safetensors", "model-a/b.safetensors")
    for name in hub.listed:
        monkeypatch.setitem(hub.files, name, b"x")
    folder = tmp_path / "folder"
    folder.mkdir()
    program = (sys.executable, "-m", "slipstream.hub_download", NAME, str(folder))  # the library reads HF_ENDPOINT once
    assert await (await asyncio.create_subprocess_exec(*program, cwd=ROOT)).wait() == 0
    assert sorted(hub.sent) == ["config.json", "model.safetensors", "tokenizer.json"]


async def test_a_model_of_vectors_is_downloaded_with_its_pooling(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: without it, the engine read the folder as a model of text and refused its tensors' names."""
    for name in ("modules.json", hub_download.POOLING, "2_Dense/config.json"):
        monkeypatch.setitem(FILES, name, b"[]")
        hub.files[name] = FILES[name]
    found = await with_hub_models(settings(), tmp_path / "models", lambda line: None)
    folder = Path(found.local.chat_model or "")
    assert (folder / "modules.json").read_bytes() == (folder / hub_download.POOLING).read_bytes() == b"[]"
    assert not (folder / "2_Dense").exists()


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    assert hub_download.reason(OSError(28, "No space left on device"), NAME) == "no space left on device"
