"""What commands say of a data folder on which processes were started one by one, without `slipstream up`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.metering.journal.disk import Disk
from gateway.metering.journal.folder import JournalFolder
from tests.deployment import free_port
from tests.slipstream.deployment import run, run_here


@pytest.fixture
def gateways(data_folder: Path) -> Iterator[str]:
    """Two journals are held, as by gateways; as messages name them."""
    folders = [JournalFolder(data_folder / "journal" / instance, Disk()) for instance in "ab"]
    for folder in folders:
        folder.lock(timeout_s=0)
    yield f"gateway a (pid {os.getpid()}), gateway b (pid {os.getpid()})"
    for folder in folders:
        folder.unlock()


def test_status_names_the_gateways_and_what_it_cannot_know(gateways: str, data_folder: Path, tmp_path: Path) -> None:
    seen = run("status", "--data", str(data_folder))
    assert (seen.returncode, seen.stderr) == (
        1,
        f"`slipstream up` does not run on {data_folder}, but {gateways}; a router or worker that was started alone "
        "is found by its settings: name them with --config\n",
    )
    file = tmp_path / "s.toml"
    file.write_text(f"[router]\ncontrol_port = {free_port()}\n")
    seen = run_here("status", "--data", str(data_folder), "--config", str(file))
    assert seen.stderr == f"`slipstream up` does not run on {data_folder}, but {gateways}; the router does not answer\n"


def test_down_stops_what_up_started_and_names_the_rest(gateways: str, data_folder: Path) -> None:
    down = run_here("down", "--data", str(data_folder))
    assert (down.returncode, down.stderr) == (
        1,
        f"{data_folder} holds no deployment of `slipstream up`; processes that were started one by one end on SIGTERM: "
        f"{gateways}\n",
    )
    (data_folder / "supervisor.lock").touch()  # once there was one
    down = run_here("down", "--data", str(data_folder))
    assert (down.returncode, down.stdout) == (
        0,
        f"nothing of `slipstream up` runs on {data_folder}; on SIGTERM end {gateways}\n",
    )


def test_a_folder_on_which_nothing_runs_is_said_to_be_one(data_folder: Path) -> None:
    data_folder.mkdir(exist_ok=True)
    seen = run_here("status", "--data", str(data_folder))
    assert seen.stderr.startswith(
        f"`slipstream up` does not run on {data_folder}, nor does a gateway; start it with `slipstream up`; "
    )
    keys = run_here("keys", "list", "--data", str(data_folder))
    assert keys.stderr.strip().endswith(
        f"is Slipstream up on this data folder? (slipstream status --data {data_folder}); if its processes were "
        "started one by one, name their settings with --config; --data names another folder"
    )


def test_the_doctor_says_first_that_nothing_runs(data_folder: Path) -> None:
    """Fault: five failed checks with advice for each, and none to start it."""
    data_folder.mkdir(exist_ok=True)
    seen = run_here("doctor", "--data", str(data_folder))
    assert seen.returncode == 1
    first, head, *_ = seen.stdout.splitlines()
    assert first.startswith(f"`slipstream up` does not run on {data_folder}, nor does a gateway; start it with")
    assert head.split() == ["check", "found"]
