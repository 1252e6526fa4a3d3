"""Finds the IPv4 address that an IP address contains, in any notation."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def plain(address: Address) -> Address:
    """The address of a connection's peer, with a mapped address (RFC 4291, 2.5.5.2) as IPv4: a socket that listens on
    IPv6 reports IPv4 peers in that form.

    No other form is converted: an address that a peer may choose must not pass as this machine or a trusted one.
    """
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def carried(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that receives packets for `address`: mapped, 6to4 (RFC 3056) or NAT64 (RFC 6052); None for a
    genuine IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    low_bits = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (low_bits if address in NAT64 else None)
