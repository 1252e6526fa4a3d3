"""Decides which addresses a webhook may reach: only public ones, because customers choose the URLs.

A name is resolved once, all its addresses are checked, and the connection goes to a checked address, so that a later
change of the name has no effect.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from contracts.addresses import Address, carried
from contracts.errors import InvalidField

# Networks that `is_global` accepts, or judges differently in different Python releases.
NEVER = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
        "::/127", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20",
        "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
    )
)  # fmt: skip
ISATAP, ISATAP_MASK = 0x5EFE, 0xFDFFFFFF
"""The upper half of an interface id with an IPv4 address, with or without the bit for 'globally unique' (RFC 5214)."""


class ForbiddenAddress(OSError):
    """The URL leads to an address that no webhook may reach."""


def is_public(address: Address) -> bool:
    """Whether the address belongs to the public internet, even if it embeds an IPv4 address."""
    if any(address in network for network in NEVER if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if (inner := carried(address)) is not None:
            return is_public(inner)
        if int(address) >> 32 == 0:  # ::a.b.c.d, deprecated but still understood by some stacks
            return False
        if (int(address) >> 32) & ISATAP_MASK == ISATAP:
            last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
            if not is_public(last):
                return False
    return address.is_global


OF_PRIVATE = "gateway.admin.webhooks.allow_private_addresses = true in the settings"


def check_url(url: str, *, allow_private: bool) -> None:
    """Raises InvalidField for a URL to which nothing can be delivered. Names are resolved later, at every delivery."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    schemes = ("https", "http") if allow_private else ("https",)
    problem = ""
    if parts.scheme not in schemes:
        problem = f"it must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"
        if parts.scheme == "http":
            problem += f"; {OF_PRIVATE} lets webhooks go to this machine and to private networks, by http too"
    elif not host or port == 0:
        problem = "it names no host and port"
    elif parts.username is not None or parts.password is not None:
        problem = "it contains a user name or password; remove them, because deliveries are signed instead"
    elif parts.fragment:
        problem = "it has a fragment, which is never sent; remove it"
    elif is_number(host):
        problem = f"{host} is a number in place of a name; write an IPv4 address as four decimal numbers"
    elif not allow_private and _is_forbidden_literal(host):
        problem = f"{host} is not an address of the public internet; {OF_PRIVATE} allows private ones"
    if problem:
        raise InvalidField(f"Invalid value for 'url': {problem}.", param="url")


def check_literal(host: str) -> None:
    """Raises ForbiddenAddress for an address that may not be reached and for a number. Neither is resolved."""
    if is_number(host) or _is_forbidden_literal(host):
        raise ForbiddenAddress(refusal(host))


def is_number(host: str) -> bool:
    """Whether the host is an IPv4 address in another form than four decimal numbers.

    `127.1`, `0x7f.1` and `2130706433` are names to Python and addresses to the C library. No name ends in a number (URL
    standard, "ends in a number"), so a host that does is an address in a form that only hides it.
    """
    last = host.rstrip(".").rpartition(".")[2].lower()
    if ":" in host or not (last.isdigit() or re.fullmatch("0x[0-9a-f]*", last)):
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False


def refusal(host: str) -> str:
    """The reason why the host may not be reached."""
    return f"{host} is {'a number in place of a name' if is_number(host) else 'not an address of the public internet'}"


def _is_forbidden_literal(host: str) -> bool:
    try:
        return not is_public(ipaddress.ip_address(host.strip("[]").partition("%")[0]))
    except ValueError:
        return host.rstrip(".").lower() == "localhost" or host.rstrip(".").lower().endswith(".localhost")
