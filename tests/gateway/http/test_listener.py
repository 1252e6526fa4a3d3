"""Whose port it is: what a gateway looks at before it shares one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from gateway.http.listener import bind, listened_on
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.folder import JournalFolder, writers
from gateway.own_port import own_port
from infra.local.ports import reserve_port
from tests.deployment import free_port


def test_a_port_counts_from_its_first_listener_to_its_last_and_not_while_connections_fade() -> None:
    with contextlib.closing(bind("127.0.0.1", 0)) as listener:
        port = listener.port
        assert not listened_on("127.0.0.1", port), "a sibling that has not started yet"
        listener.listen()
        assert listened_on("127.0.0.1", port)
        with contextlib.closing(bind("127.0.0.1", port)) as sibling:
            sibling.listen()
            client = socket.create_connection(("127.0.0.1", port))
            for each in (listener, sibling):
                with contextlib.suppress(BlockingIOError):
                    each.socket.accept()[0].close()  # first, so that our side waits out TIME_WAIT
            client.close()
            listener.close()
            assert listened_on("127.0.0.1", port)
        assert not listened_on("127.0.0.1", port)
        with contextlib.closing(bind("127.0.0.1", port)) as restarted:
            restarted.listen()


async def test_of_two_deployments_that_start_at_once_one_gets_the_port_and_its_own_gateways_join(
    tmp_path: Path,
) -> None:
    port, ours, theirs = free_port(), tmp_path / "ours", tmp_path / "theirs"
    journal = JournalFolder(ours / "0", Disk())
    with await own_port("127.0.0.1", port, ours, kept=False), contextlib.closing(bind("127.0.0.1", port)) as listener:
        # neither listens yet, and only the first has reserved the port
        second = asyncio.create_task(own_port("127.0.0.1", port, ours, kept=False))
        stranger = asyncio.create_task(own_port("127.0.0.1", port, theirs, kept=False))
        await asyncio.sleep(0)
        assert not second.done()
        journal.lock(timeout_s=0)
        (await second).close()
        bind("127.0.0.1", port).close()
        listener.listen()
        with pytest.raises(ConfigError, match=f"gateway.port: cannot listen on 127.0.0.1:{port}: another program does"):
            await stranger
        journal.unlock()
    with reserve_port("127.0.0.1", port):  # as `up` does
        (await own_port("127.0.0.1", port, ours, kept=True)).close()


def test_a_deployments_gateways_are_known_by_the_journals_they_hold(tmp_path: Path) -> None:
    assert not writers(tmp_path / "journal")
    folders = [JournalFolder(tmp_path / "journal" / name, Disk()) for name in "01"]
    for folder in folders:
        folder.lock(timeout_s=0)
    assert writers(tmp_path / "journal") == {"0": str(os.getpid()), "1": str(os.getpid())}
    folders[0].unlock()
    assert writers(tmp_path / "journal") == {"1": str(os.getpid())}
    folders[1].unlock()
    assert not writers(tmp_path / "journal")
    folders[0].lock(timeout_s=0)
    folders[0].unlock()
