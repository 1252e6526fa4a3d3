"""Resolves names for deliveries, to addresses that a webhook may reach."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

from control.webhooks.address import ForbiddenAddress, is_number, is_public, refusal


class PublicResolver(AbstractResolver):
    """Resolves a name to addresses that may be reached. A name with one forbidden address is refused, as a connection
    may take any of its addresses.

    threads: limit of concurrent lookups. A name server that never answers occupies a thread for as long as the system
    waits. The threads are separate, because a few such names would occupy all threads of the event loop.
    """

    def __init__(self, *, allow_private: bool = False, threads: int = 8) -> None:
        self._allow_private = allow_private
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="webhook-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a name for aiohttp. Raises ForbiddenAddress, or OSError for an unknown name."""
        if is_number(host):
            raise ForbiddenAddress(refusal(host))
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        results: list[ResolveResult] = []
        for kind, _, protocol, _, socket_address in found:
            text = str(socket_address[0]).partition("%")[0]
            if not self._allow_private and not is_public(ipaddress.ip_address(text)):
                # The error omits the address: with it, tenants could read the deployment's name servers.
                raise ForbiddenAddress(f"{host} does not lead to an address of the public internet")
            results.append(
                ResolveResult(
                    hostname=host,
                    host=str(socket_address[0]),
                    port=port,
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return results

    async def close(self) -> None:
        """Stop the threads. Lookups in progress end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
