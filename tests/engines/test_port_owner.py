"""Whose programs connections to an engine's address reach, by tables as the kernel prints them."""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from engines.http import port_owner
from engines.http.port_owner import listening_uids

OURS, THEIRS = 1000, 65534


def line(address: str, uid: int) -> str:
    packed = ipaddress.ip_address(address).packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    digits = "".join(f"{word:08X}" for word in words)
    return f"   0: {digits}:1F90 {'0' * len(digits)}:0000 0A 00000000:00000000 00:00000000 00000000  {uid}        0 1\n"


@pytest.mark.parametrize(
    ("host", "listeners", "reached"),
    [
        ("127.0.0.1", {"127.0.0.1": OURS, "127.0.0.2": THEIRS, "::1": THEIRS}, {OURS}),
        ("127.0.0.1", {"127.0.0.2": THEIRS}, set()),
        ("127.0.0.1", {"0.0.0.0": THEIRS}, {THEIRS}),
        ("127.0.0.1", {"::": THEIRS}, {THEIRS}),
        ("127.0.0.1", {"::ffff:127.0.0.1": THEIRS}, {THEIRS}),
        ("127.0.0.1", {"::ffff:0.0.0.0": THEIRS}, {THEIRS}),
        ("127.0.0.1", {"0.0.0.0": OURS, "::": THEIRS}, {OURS}),  # theirs is of IPv6 alone, or could not listen
        ("0.0.0.0", {"127.0.0.1": THEIRS}, {THEIRS}),
        ("::1", {"::1": OURS, "127.0.0.1": THEIRS, "0.0.0.0": THEIRS}, {OURS}),
        ("::1", {"::": THEIRS}, {THEIRS}),
        ("::ffff:127.0.0.1", {"127.0.0.1": THEIRS}, {THEIRS}),
    ],
)
def test_only_listeners_that_get_its_connections_count(
    host: str, listeners: dict[str, int], reached: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "tcp"
    table.write_text("".join(line(address, uid) for address, uid in listeners.items()))
    monkeypatch.setattr(port_owner, "TABLES", (table,))
    assert listening_uids(host, 8080) == reached
    assert listening_uids(host, 8081) == set()


def test_a_host_without_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="engine on ''"):
        listening_uids("", 8080)
