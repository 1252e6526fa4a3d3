"""Resolves names for deliveries, to addresses that a webhook may reach."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

from control.webhooks.address import ForbiddenAddress, is_number, is_public, refusal


class PublicResolver(AbstractResolver):
    """Resolves a name to addresses that may be reached. One forbidden address refuses the name: which of several a
    connection takes is chance.

    threads: names looked up at once; a name server that never answers holds one for as long as the system waits. They
    are the resolver's own, for in the loop's few threads a handful of such names would keep everybody waiting.
    """

    def __init__(self, *, allow_private: bool = False, threads: int = 8) -> None:
        self._allow_private = allow_private
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="webhook-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """For aiohttp. Raises ForbiddenAddress, or OSError for a name that is not."""
        if is_number(host):
            raise ForbiddenAddress(refusal(host))
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        results: list[ResolveResult] = []
        for kind, _, protocol, _, place in found:
            text = str(place[0]).partition("%")[0]
            if not self._allow_private and not is_public(ipaddress.ip_address(text)):
                # Which address that is, is the deployment's own: a tenant would read its name servers by it.
                raise ForbiddenAddress(f"{host} does not lead to an address of the public internet")
            results.append(
                ResolveResult(
                    hostname=host,
                    host=str(place[0]),
                    port=port,
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return results

    async def close(self) -> None:
        """Lookups still under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
