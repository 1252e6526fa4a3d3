"""The IPv4 address that an IP address stands for, in any notation."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def plain(address: Address) -> Address:
    """The peer of a connection: a socket that listens on IPv6 reports IPv4 peers as mapped addresses (RFC 4291,
    2.5.5.2).

    No other form counts here: an address that a peer may choose must not pass as this machine or a trusted one.
    """
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def carried(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address where packets to it end: mapped, 6to4 (RFC 3056) or NAT64 (RFC 6052); None for a real IPv6
    address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (last if address in NAT64 else None)
