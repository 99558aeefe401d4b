"""Webhooks reach public addresses alone, by the address that is connected to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

import httpcore
import pytest

from sirocco.services.connector.sinks.addresses import (
    CheckedNetwork,
    PrivateAddressError,
    is_public,
)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
        *(
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "fec0::1",
            "2001:db8::1",
        ),
        # IPv4 within IPv6: mapped, 6to4, NAT64.
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a00:1::"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
    ],
)
def test_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"],
)
def test_public(address: str) -> None:
    assert is_public(ip_address(address))


class Recorded(httpcore.AsyncNetworkBackend):
    """Notes the addresses that are connected to."""

    def __init__(self) -> None:
        self.hosts: list[str] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.hosts.append(host)
        raise httpcore.ConnectError("nobody there")


def connect(names: dict[str, list[list[str]]], host: str, *, allow: bool = False) -> list[str]:
    """Connects to a host whose name resolves to other addresses each time."""
    inner = Recorded()

    def resolve(name: str, port: int, **_named: Any) -> list[Any]:
        found = names[name].pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    async def work() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", resolve)
            await CheckedNetwork(allow, inner).connect_tcp(host, 443, 5.0)

    with pytest.raises(httpcore.ConnectError):
        asyncio.run(work())
    return inner.hosts


def test_a_name_is_resolved_once_and_its_address_connected_to() -> None:
    """The second look would lead elsewhere: DNS rebinding."""
    names = {"evil.example": [["8.8.8.8"], ["127.0.0.1"]]}
    assert connect(names, "evil.example") == ["8.8.8.8"]
    assert names["evil.example"] == [["127.0.0.1"]]


def test_one_private_address_among_others_is_enough_to_refuse() -> None:
    assert connect({"a.example": [["8.8.8.8", "10.0.0.1"]]}, "a.example") == []


def test_a_zone_is_of_this_link() -> None:
    assert connect({"a.example": [["fe80::1%eth0"]]}, "a.example") == []


def test_private_addresses_may_be_allowed() -> None:
    assert connect({"a.example": [["10.0.0.1", "8.8.8.8"]]}, "a.example", allow=True) == [
        "10.0.0.1",
        "8.8.8.8",
    ]


def test_sockets_of_this_host_are_refused() -> None:
    with pytest.raises(PrivateAddressError):
        asyncio.run(CheckedNetwork(True).connect_unix_socket("/run/docker.sock"))
