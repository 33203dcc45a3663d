"""Addresses of networks: which of them a worker may send to when somebody else names the host. Arithmetic only: no I/O.

Look here when a notification is refused with the words "not a public address". A host is judged by the addresses that it
resolves to, never by its name, so any spelling of a private address comes to the same.

What is public is listed, and not what is private: of IPv6 that is 2000::/3, the only part that is given out. An address that
carries one of IPv4 in it is judged by that one, or refused where a router would send it on.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from holdfast.errors import BadArguments
from holdfast.values.text import short

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SPECIAL: Final = [
    ipaddress.ip_network(each)
    for each in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",  # private
        "100.64.0.0/10",  # behind a provider's translation; clouds keep metadata here
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and the metadata of clouds
        "168.63.129.16/32",  # the metadata of Azure, though in a public range
        "192.0.0.0/24", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15",  # protocols, examples, tests
        "192.88.99.0/24",  # relays of 6to4
        "224.0.0.0/4", "240.0.0.0/4",  # multicast, reserved, broadcast
        "2001::/23",  # Teredo and other protocols
        "2001:db8::/32", "3fff::/20",  # examples
        "2002::/16",  # 6to4: any address of IPv4
    )
]  # fmt: skip
_GIVEN_OUT: Final = ipaddress.IPv6Network("2000::/3")


def is_public(address: Address) -> bool:
    """Is this an address of the internet, that no network keeps for itself?"""
    found = plain(address)
    if isinstance(found, ipaddress.IPv6Address) and found not in _GIVEN_OUT:
        return False
    return not any(found in each for each in _SPECIAL if each.version == found.version)


def plain(address: Address) -> Address:
    """Take the address of IPv4 out of one of IPv6 that only stands for it (`::ffff:127.0.0.1`)."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    """Is it in one of these networks?"""
    found = plain(address)
    return any(found in each for each in networks if each.version == found.version)


def networks_of(text: str) -> list[Network]:
    """Read a list of networks or addresses, with commas or spaces between them. `BadArguments` if one is none."""
    found: list[Network] = []
    for each in text.replace(",", " ").split():
        try:
            found.append(ipaddress.ip_network(each))
        except ValueError:
            raise BadArguments(f"{short(each)} is not a network; write it as 10.0.0.0/8 or 127.0.0.1") from None
    return found
