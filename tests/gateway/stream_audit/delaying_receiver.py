"""A relay whose kernel delays every acknowledgement to what it relays from, as receivers may: what Nagle waits for.

Linux does so only now and then by itself, so it is told before each read.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def delaying_receiver(port: int) -> Iterator[int]:
    """Relays to this port of our own machine, any number of connections; its own port. Linux only."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads: list[threading.Thread] = []
        sockets: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                server = socket.create_connection(("127.0.0.1", port))
                sockets.extend((client, server))
                for thread in (
                    threading.Thread(target=_pass, args=(client, server, False)),
                    threading.Thread(target=_pass, args=(server, client, True)),
                ):
                    thread.start()
                    threads.append(thread)

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for each in sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for each in sockets:
                each.close()


def _pass(source: socket.socket, target: socket.socket, delays: bool) -> None:
    target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):
        while True:
            if delays:
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            data = source.recv(65_536)
            if not data:
                break
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
