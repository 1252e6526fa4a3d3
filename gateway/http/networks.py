"""Determines a client's network: its IPv4 address or IPv6 /64, or the forwarded one behind a trusted proxy."""

from __future__ import annotations

import ipaddress

from contracts.addresses import Address, carried, plain
from contracts.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def trusted_networks(entries: tuple[str, ...]) -> tuple[Network, ...]:
    """Parse the setting's entries. Raises ConfigError."""
    networks = []
    for number, entry in enumerate(entries):
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError as error:
            param = f"gateway.connections.trusted_proxies[{number}]"
            raise ConfigError(
                f"{param}: {error}; give an address or a network such as 10.1.0.0/16", param=param
            ) from None
    return tuple(networks)


def is_among(host: str, networks: tuple[Network, ...]) -> bool:
    """Whether a peer's address is in one of these networks."""
    address = _address(host)
    return address is not None and any(address in network for network in networks)


def network_of(host: str) -> str:
    """A client's network: an IPv4 address or an IPv6 /64. Empty if the host is not an address, as without a socket."""
    address = _address(host)
    if address is None:
        return ""
    address = carried(address) or address
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def forwarded_address(forwarded_for: str, trusted: tuple[Network, ...]) -> str:
    """The client's address in X-Forwarded-For: the last entry that is no trusted proxy, because clients may write the
    entries before it. Empty if the header has none."""
    for entry in reversed(forwarded_for.split(",")):
        address = _without_port(entry.strip())
        if address and not is_among(address, trusted):
            return address
    return ""


def _without_port(host: str) -> str:
    """Remove the port, because some proxies write `203.0.113.9:4711` or `[2001:db8::1]:4711`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _address(host: str) -> Address | None:
    try:
        return plain(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return None
