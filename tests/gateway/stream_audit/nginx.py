"""A real nginx in front of a gateway, one server for each way of setting it up.

Without nginx the tests skip and say so, unless `TEST_NGINX=required`, as in CI.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import shutil
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.certificates import write_certificate
from tests.deployment import ROOT, free_port
from tests.temporary import short_folder
from tests.waiting import eventually

KEPT = 'proxy_http_version 1.1; proxy_set_header Connection "";'
"""What every server has that does not do without: connections to the gateway are kept."""
GUIDE = re.findall(r"^```nginx\n(.*?)^```$", (ROOT / "docs" / "guides" / "network.md").read_text(), re.M | re.S)
"""What the guide to the network recommends, whole."""
GZIP = "gzip on; gzip_types text/event-stream; gzip_min_length 0;"
SERVERS: Mapping[str, tuple[str, str]] = {
    # name: what the server has, what its location has
    "honouring": ("", f"{KEPT} proxy_buffering on;"),  # but for answers that say X-Accel-Buffering: no
    # What comes in HTTP/1.1's chunks nginx passes on as soon as they are whole, whatever proxy_buffering says.
    "buffering": ("", "proxy_http_version 1.0; proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;"),
    "http10": ("", "proxy_http_version 1.0; proxy_buffering on;"),
    "gzip": (GZIP, f"{KEPT} proxy_buffering off;"),
    "buffering_gzip": (GZIP, f"{KEPT} proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;"),
    "upstream_closed": ("", "proxy_http_version 1.1; proxy_set_header Connection close; proxy_buffering off;"),
    "client_closed": ("keepalive_timeout 0;", f"{KEPT} proxy_buffering off;"),
    "nagle": ("tcp_nodelay off; tcp_nopush off; sendfile off;", f"{KEPT} proxy_buffering off;"),
    "impatient": ("", f"{KEPT} proxy_buffering off; proxy_read_timeout 1s;"),
    "hiding": (
        "",
        f"{KEPT} proxy_buffering off; proxy_hide_header Server-Timing; proxy_hide_header X-Request-ID;"
        " add_header X-Request-ID another; proxy_set_header X-Client-Request-ID theirs;",
    ),
    "tls": ("", f"{KEPT} proxy_buffering off;"),
    "old_tls": ("ssl_protocols TLSv1.2;", f"{KEPT} proxy_buffering off;"),
}
RECOMMENDED = "guide"
SECURE = frozenset({RECOMMENDED, "tls", "old_tls"})
CONFIG = """
daemon off;
worker_processes 1;
{user}
error_log {folder}/error.log warn;
pid {folder}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    ssl_protocols TLSv1.2 TLSv1.3;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    proxy_set_header X-Forwarded-For $remote_addr;
    {servers}
}}
"""
SERVER = """
upstream {name} {{ server 127.0.0.1:{gateway}; {kept} }}
server {{ listen 127.0.0.1:{port}{tls}; {server} location / {{ proxy_pass http://{name}; {location} }} }}
"""


class Nginx:
    """Running. certificate_file: what a client of the TLS servers must trust; it is valid for a day."""

    def __init__(self, ports: Mapping[str, int], certificate_file: Path) -> None:
        self._ports = ports
        self.certificate_file = certificate_file

    def url(self, server: str) -> str:
        """Of one of SERVERS."""
        return f"http{'s' if server in SECURE else ''}://127.0.0.1:{self._ports[server]}"


def server_closes(location: str) -> bool:
    """Its connections to the gateway are for one request each."""
    return 'Connection ""' not in location


def program() -> str:
    """nginx, wherever it is. Skips the test."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if found is None:
        if os.environ.get("TEST_NGINX") == "required":
            pytest.fail("nginx is not installed, and TEST_NGINX=required (apt-get install nginx)")
        pytest.skip("NOT TESTED: network audits through a real nginx, which is not installed (apt-get install nginx)")
    return found


@contextlib.asynccontextmanager
async def nginx(gateway_port: int) -> AsyncIterator[Nginx]:
    """In front of the gateway on this port; gone at the end."""
    path, (guide,) = program(), GUIDE
    folder = short_folder()
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    write_certificate(certificate_file, key_file)
    ports = {name: free_port() for name in SERVERS}
    tls = f" ssl; ssl_certificate {certificate_file}; ssl_certificate_key {key_file}"
    servers = "".join(
        SERVER.format(
            name=name,
            gateway=gateway_port,
            kept="" if server_closes(location) else "keepalive 8;",
            port=ports[name],
            tls=tls if name in SECURE else "",
            server=server,
            location=location,
        )
        for name, (server, location) in SERVERS.items()
    )
    ports[RECOMMENDED] = free_port()
    for theirs, ours in (
        ("127.0.0.1:8000", f"127.0.0.1:{gateway_port}"),
        ("listen 443", f"listen 127.0.0.1:{ports[RECOMMENDED]}"),
        ("/etc/nginx/tls/fullchain.pem", str(certificate_file)),
        ("/etc/nginx/tls/privkey.pem", str(key_file)),
    ):
        assert theirs in guide, "the guide's example has changed: so must this"
        guide = guide.replace(theirs, ours)
    config = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # its own user may not enter our folder
    config.write_text(CONFIG.format(folder=folder, servers=servers + guide, user=user))
    process = await asyncio.create_subprocess_exec(path, "-p", str(folder), "-c", str(config), "-e", "stderr")
    try:
        for port in ports.values():
            await eventually(functools.partial(_listens, port, process))
        yield Nginx(ports, certificate_file)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int, process: asyncio.subprocess.Process) -> bool:
    assert process.returncode is None, "nginx has ended; it said why on stderr"
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
        return True
    return False
