"""The matrix judges clients by what the gateway has seen, and its rows are whole. By night installed clients run."""

from __future__ import annotations

import datetime

import pytest

from benchmarks.client_tool_runs.environment import REQUIREMENTS
from tests.clients.matrix import ENVIRONMENTS, FEATURES, Feature, Row, all_rows, clients, judged, page
from tests.clients.witness import Exchange

CHAT = FEATURES[0]
LIMITED = next(feature for feature in FEATURES if feature.name == "retry_429")


def exchange(status: int, path: str = "/v1/chat/completions") -> Exchange:
    return Exchange("POST", path, status, "")


@pytest.mark.parametrize(
    ("feature", "exchanges", "works"),
    [
        (CHAT, [exchange(200)], True),
        (CHAT, [], False),
        (CHAT, [exchange(404), exchange(200)], False),
        (CHAT, [exchange(200, "/v1/models")], False),
        (LIMITED, [exchange(429), exchange(200)], True),
        (LIMITED, [exchange(200)], False),
        (LIMITED, [exchange(200), exchange(429)], False),
        (Feature("messages", "Messages", "/messages"), [exchange(200)], False),
    ],
)
def test_a_feature_works_if_the_gateway_served_its_request(
    feature: Feature, exchanges: list[Exchange], works: bool
) -> None:
    assert (judged(feature, exchanges) is None) is works


def test_every_client_is_named_and_pinned() -> None:
    rows = clients()
    assert len({client.title for client in rows}) == len(rows) >= 22
    of_tools = REQUIREMENTS.read_text().splitlines()
    for client in rows:
        packages = [*client.pip, *client.npm]
        assert not client.is_load_tool or set(packages) <= set(of_tools), client.name
        assert packages, client.name
        assert all("==" in package or "@" in package[1:] for package in packages), client.name


def test_the_page_has_a_row_for_each_client_and_a_reason_for_each_no() -> None:
    one, other, *_ = clients()
    today = datetime.date(2026, 11, 28)
    text = page([Row(one, {CHAT.name: None, LIMITED.name: "it | gave up"}, "", today), Row(other, {}, "gone", today)])
    cells = next(line for line in text.splitlines() if line.startswith(f"| {one.title} |")).split(" | ")
    assert (cells[3], cells[3 + FEATURES.index(LIMITED)]) == ("yes", "no")
    assert f"**{one.title}, 429, retried**: `it | gave up`" in text
    assert text.count("not installed") == len(FEATURES)


@pytest.mark.nightly
@pytest.mark.timeout(7_200)
async def test_the_installed_clients_work() -> None:
    installed = [client for client in clients() if client.is_installed(ENVIRONMENTS)]
    if not installed:
        pytest.skip("CLIENTS NOT TESTED: `python -m tests.clients.matrix` installs them")
    rows = await all_rows(installed, ENVIRONMENTS)
    assert {row.client.name: row.absent or row.unexplained for row in rows if row.absent or row.unexplained} == {}
