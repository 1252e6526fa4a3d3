"""Whose port it is: what a gateway looks at before it shares one."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from gateway.http.listener import bind, listened_on
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.folder import JournalFolder, writers


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
