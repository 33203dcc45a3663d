"""Which addresses a worker sends to: those of the internet, however they are spelled, and no others."""

import ipaddress
import socket

import pytest

from holdfast import BadArguments
from holdfast.words.addresses import is_in, is_public, networks_of

PRIVATE = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254 169.254.0.1
    169.254.169.254 168.63.129.16 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.170 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1
    198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
    :: ::1 ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:7f00:1 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::1 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:10::1 2001:20::1
    2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe::1 2002:808:808:: 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fd12:3456::1 fe80::1
    fe80::1%eth0 febf::1 fec0::1 ff02::1 ff0e::1
""".split()  # noqa: SIM905 - a table
PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 168.63.129.15 168.63.129.17
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0
    223.255.255.255 ::ffff:8.8.8.8 2001:200::1 2001:4860:4860::8888 2003::1 2606:4700:4700::1111 2a00:1450::1
""".split()  # noqa: SIM905 - a table


@pytest.mark.parametrize("text", PRIVATE)
def test_not_public(text):
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_public(text):
    assert is_public(ipaddress.ip_address(text))


# As a URL may spell a host; a resolver makes an address of each without asking anybody.
SPELLINGS = """
    127.1 127.0.1 2130706433 0x7f000001 0x7f.1 017700000001 0177.0.0.01 0 0x0 10.1 0xa.1 012.1 2852039166 0xa9fea9fe
    0251.0376.0251.0376 169.254.43518 3232235521 ::ffff:127.0.0.1 ::ffff:7f00:1 0:0:0:0:0:ffff:7f00:0001 ::
""".split()  # noqa: SIM905 - a table


@pytest.mark.parametrize("host", SPELLINGS)
def test_other_spellings_of_private_ones_come_to_the_same(host):
    found = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    assert found
    assert not any(is_public(ipaddress.ip_address(address[0])) for *_, address in found)


def test_an_operator_names_networks():
    allowed = networks_of("10.1.0.0/16, 127.0.0.1 fd00::/8")
    told = {
        text: is_in(ipaddress.ip_address(text), allowed) for text in ("10.1.2.3", "10.2.0.1", "127.0.0.1", "127.0.0.2")
    }
    assert told == {"10.1.2.3": True, "10.2.0.1": False, "127.0.0.1": True, "127.0.0.2": False}
    assert is_in(ipaddress.ip_address("::ffff:10.1.2.3"), allowed)
    assert is_in(ipaddress.ip_address("fd12::1"), allowed)
    assert networks_of("") == []
    for wrong in ("10.1.2.3/16", "localhost", "10.0.0.0/33"):
        with pytest.raises(BadArguments, match="not a network"):
            networks_of(wrong)
