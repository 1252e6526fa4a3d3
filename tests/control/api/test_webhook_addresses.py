"""Where webhooks may lead: every way to name a private address is refused, before a byte is sent."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from contracts.errors import InvalidField
from control.api.config import WebhooksConfig
from control.webhooks.address import ForbiddenAddress, check_url, is_public
from control.webhooks.resolver import PublicResolver
from control.webhooks.sender import Sender
from tests.control.api.receiver import receiver

PRIVATE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "127.0.0.1", "127.255.0.9", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.7", "203.0.113.5", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::a00:1",
    "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1",
    "2002:7f00:1::", "2002:a00:1::1", "2002:c0a8:101::", "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1",
    "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
    # IPv4 inside IPv6, in every form there is: translated (SIIT), local NAT64, 6to4, Teredo, ISATAP.
    "::ffff:0:127.0.0.1", "::ffff:0:10.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b:1::808:808", "64:ff9b:1:ffff::7f00:1",
    "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:808:808::f7f7:f7f7",
    "2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450:4001::1",
          "64:ff9b::808:808", "2002:808:808::1", "::ffff:8.8.8.8", "2606:4700::5efe:8.8.8.8"]  # fmt: skip


@pytest.mark.parametrize("text", PRIVATE)
def test_private_addresses_are_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/hook", "must begin with https"),
        ("http://127.0.0.1:9000/hook", r"gateway\.admin\.webhooks\.allow_private_addresses = true"),
        ("ftp://example.com/hook", "must begin with https"),
        ("file:///etc/passwd", "must begin with https"),
        ("https:///hook", "names no host"),
        ("https://example.com:0/", "names no host and port"),
        ("https://example.com:99999/", "must begin"),
        ("https://user:secret@example.com/", "user name or password"),
        ("https://example.com/#part", "fragment"),
        ("https://127.0.0.1/", r"gateway\.admin\.webhooks\.allow_private_addresses = true"),
        ("https://[::1]/", "not an address of the public internet"),
        ("https://[::ffff:10.0.0.1]:8443/", "not an address of the public internet"),
        ("https://169.254.169.254/latest/meta-data", "not an address of the public internet"),
        ("https://localhost/", "not an address of the public internet"),
        ("https://a.localhost./", "not an address of the public internet"),
        ("https://127.1/", "a number in place of a name"),
        ("https://0x7f.1/", "a number in place of a name"),
        ("https://2130706433/", "a number in place of a name"),
        ("https://0177.0.0.1/", "a number in place of a name"),
        ("https://127.0.0.1./", "a number in place of a name"),
        ("https://1.2.3.4.5/", "a number in place of a name"),
        ("https://example.0x/", "a number in place of a name"),
    ],
)
def test_urls_that_can_never_be_delivered_to_are_refused_when_given(url: str, why: str) -> None:
    with pytest.raises(InvalidField, match=why) as caught:
        check_url(url, allow_private=False)
    assert caught.value.param == "url"


def test_a_deployment_may_allow_its_own_networks() -> None:
    check_url("http://10.0.0.1:8080/hook", allow_private=True)
    check_url("https://example.com/hook", allow_private=False)
    with pytest.raises(InvalidField, match="user name"):
        check_url("http://u@10.0.0.1/", allow_private=True)
    check_url("https://1.1.1.1/", allow_private=False)
    check_url("https://[2606:4700::5efe:8.8.8.8]/", allow_private=False)
    with pytest.raises(InvalidField, match="a number in place of a name"):
        check_url("http://127.1/", allow_private=True)


async def test_no_spelling_of_this_machine_is_reached() -> None:
    async with receiver() as server, Sender(WebhooksConfig(timeout_s=5)) as sender:
        for host in (
            "127.0.0.1", "[::1]", "localhost", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "0x7f.1",
            "127.0.0.1.", "[::ffff:127.0.0.1]", "[::ffff:0:127.0.0.1]", "0",
        ):  # fmt: skip
            outcome = await sender.send(f"https://{host}:{server.port}/", b"{}", {})
            assert outcome.status is None
            assert _is_refused(outcome.error), outcome
            assert "require https" in str((await sender.send(f"http://{host}/", b"{}", {})).error)
        assert server.came == []


async def test_the_resolver_asks_nobody_about_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library would read it as an address; we do not wait for another library to refuse it first."""
    asked = answering(monkeypatch, ["93.184.216.34"])
    for host in ("127.1", "0x7f.1", "2130706433", "0177.0.0.1", "0"):
        with pytest.raises(ForbiddenAddress, match="a number in place of a name"):
            await PublicResolver(allow_private=True).resolve(host, 443)
    assert asked == []


def _is_refused(error: str | None) -> bool:
    """By us: neither the operating system nor another library was asked."""
    ours = ("not an address of the public internet", "is a number in place of a name")
    return error is not None and error.endswith(ours)


def answering(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Make the system's resolver give these addresses, one list for each question; returns the questions."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        given = answers[min(len(asked), len(answers)) - 1]
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in given
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(
    "addresses", [["10.0.0.7"], ["93.184.216.34", "10.0.0.7"], ["fe80::1%eth0"], ["::ffff:127.0.0.1"]]
)
async def test_a_name_that_leads_inside_is_refused_even_if_only_partly(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, addresses)
    async with Sender(WebhooksConfig()) as sender:
        outcome = await sender.send("https://innocent.example/", b"{}", {})
    assert "innocent.example does not lead to an address of the public internet" in str(outcome.error)
    assert not [address for address in addresses if address in str(outcome.error)], "what our name servers know is ours"


async def test_what_was_checked_is_what_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the second answer leads inside, and nobody asks a second time."""
    asked = answering(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
    found = await PublicResolver().resolve("rebind.example", 443)
    assert [entry["host"] for entry in found] == ["93.184.216.34"]
    assert all(entry["flags"] & socket.AI_NUMERICHOST for entry in found)  # so connecting resolves nothing
    assert asked == ["rebind.example"]


class _Here(AbstractResolver):
    """Everything is this machine: as a public receiver would look, without a public network."""

    def __init__(self) -> None:
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("status", [302, 307])
async def test_redirects_are_not_followed(status: int) -> None:
    resolver = _Here()
    async with (
        receiver() as server,
        Sender(WebhooksConfig(allow_private_addresses=True), resolver) as sender,
    ):
        server.answers, server.location = [status], f"http://127.0.0.1:{server.port}/inside"
        outcome = await sender.send(f"http://public.example:{server.port}/", b"{}", {})
        assert outcome.status == status
        assert "redirects are not followed" in str(outcome.error)
        assert len(server.came) == 1
        assert server.came[0].headers["host"] == f"public.example:{server.port}"
        assert resolver.asked == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver() as server, receiver() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with Sender(WebhooksConfig(allow_private_addresses=True)) as sender:
            assert (await sender.send(server.url, b"{}", {})).delivered
        assert len(server.came) == 1
        assert proxy.came == []


async def test_a_receiver_that_does_not_answer_is_given_up() -> None:
    async with receiver() as server, Sender(WebhooksConfig(allow_private_addresses=True, timeout_s=0.2)) as sender:
        server.answers = [0]
        assert (await sender.send(server.url, b"{}", {})).error == "no answer within 0.2 s"
