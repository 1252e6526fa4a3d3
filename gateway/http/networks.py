"""Where a client comes from: its address, or an IPv6 client's /64; behind a trusted proxy, what that proxy says."""

from __future__ import annotations

import ipaddress

from contracts.addresses import Address, carried, plain
from contracts.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def trusted_networks(entries: tuple[str, ...]) -> tuple[Network, ...]:
    """The setting's entries. Raises ConfigError."""
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
    """What one client's addresses have in common. Empty for what is no address, such as of what is no socket."""
    address = _address(host)
    if address is None:
        return ""
    address = carried(address) or address
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def told_address(forwarded_for: str, trusted: tuple[Network, ...]) -> str:
    """Whose request a trusted proxy passes on, by X-Forwarded-For: the last one that is no proxy of ours; what stands
    before it anybody may have written. Empty: it does not say."""
    for told in reversed(forwarded_for.split(",")):
        address = _without_port(told.strip())
        if address and not is_among(address, trusted):
            return address
    return ""


def _without_port(host: str) -> str:
    """Some proxies write `203.0.113.9:4711` or `[2001:db8::1]:4711`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _address(host: str) -> Address | None:
    try:
        return plain(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return None
