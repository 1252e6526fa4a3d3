"""systemd units and the compose file: their command lines are the program's, and what they name is there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from contracts import settings
from gateway.config import GatewayConfig
from slipstream.__main__ import cli
from slipstream.settings import Settings
from tests.deployment import ROOT

SYSTEMD = ROOT / "infra" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
SOCKET = SYSTEMD / "slipstream-gateway.socket"
COMPOSE = ROOT / "infra" / "compose"
PROGRAM = "/opt/slipstream/.venv/bin/slipstream"


def _takes(arguments: list[str]) -> click.Context:
    """The program's own reading of a command line; raises when it would refuse it."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and not arguments[0].startswith("-"):  # a group may be a process itself
        found = command.get_command(context, arguments[0])
        assert found is not None, arguments
        command, arguments = found, arguments[1:]
    return command.make_context("slipstream", list(arguments), parent=context)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_unit_runs_a_command_there_is(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
    program, *arguments = shlex.split(re.sub(r"%i|\$\{\w+\}", "1", line))
    assert program == PROGRAM
    assert _takes(arguments).params["config_file"] == Path("/etc/slipstream/slipstream.toml")


def test_there_is_a_unit_for_every_process_and_the_guide_names_it() -> None:
    processes = {unit.name.removeprefix("slipstream-").partition(".")[0].rstrip("@") for unit in UNITS}
    assert processes == {"router", "gateway", "control", "worker", "evals", "engine", "migrate"}
    guide = (ROOT / "docs" / "guides" / "deploy.md").read_text()
    assert all(f"slipstream-{process}" in guide for process in processes)


def test_gateways_take_the_socket_that_systemd_holds_and_say_when_they_serve() -> None:
    gateway = (SYSTEMD / "slipstream-gateway@.service").read_text()
    assert f"\nSockets={SOCKET.name}\n" in gateway
    assert "\nType=notify\n" in gateway
    (address,) = re.findall(r"^ListenStream=(.*)$", SOCKET.read_text(), re.M)
    config = GatewayConfig()
    assert address == f"{config.host}:{config.port}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_every_unit(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    (tmp_path / SOCKET.name).write_text(SOCKET.read_text())
    files = [str(tmp_path / unit.name) for unit in (*UNITS, SOCKET)]
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, timeout=60, check=False
    )
    about_ours = [line for line in told.stderr.splitlines() if "slipstream" in line]
    assert (told.returncode, about_ours) == (0, []), told.stderr


def test_compose_runs_commands_there_are_on_files_there_are(tmp_path: Path) -> None:
    composed = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    services: dict[str, dict[str, Any]] = composed["services"]
    for name, service in services.items():
        for mount in service.get("volumes", ()):
            source = mount.partition(":")[0]
            assert source in composed["volumes"] or (COMPOSE / source).is_file(), mount
        assert set(service.get("depends_on", ())) <= set(services), name
        if service["image"] == "slipstream":
            assert _takes(service["command"]).params["config_file"] == Path("/etc/slipstream/slipstream.toml")
    read = settings.load(Settings, COMPOSE / "slipstream.toml", {})
    assert read.gateway.router.address == f"router:{read.router.port}"
    assert read.local.valkey_url == "redis://valkey:6379/0"
    assert services["gateway"]["ports"] == [f"127.0.0.1:8000:{read.gateway.port}"]


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("gateway", {"router", "valkey", "postgres"}),
        ("worker", {"valkey", "postgres"}),
        ("evals", {"valkey", "postgres"}),
    ],
)
def test_compose_stops_a_service_before_those_that_it_needs(name: str, needed: set[str]) -> None:
    """Fault: a gateway's last requests met a router and a Valkey that had been stopped with it."""
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    outlasting, pending = set[str](), [name]
    while pending:
        further = set(services[pending.pop()].get("depends_on", ())) - outlasting
        outlasting |= further
        pending += further
    assert needed <= outlasting


def test_the_image_copies_what_there_is() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", (COMPOSE / "Dockerfile").read_text(), re.M):
        assert (ROOT / line.split()[0]).exists(), line


def test_the_passwords_beside_the_compose_file_go_into_no_commit_and_no_image() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    assert "**/.env" in (ROOT / ".dockerignore").read_text().splitlines()
