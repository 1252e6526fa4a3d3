"""A real gateway behind a real nginx, set up in every way that the audit knows: exactly what is wrong is found.

How busy the machine is decides no test: an audit that it was too busy for says so, and is done again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import msgspec
import pytest

from slipstream.stream_audit.measure import Plan, measure
from slipstream.stream_audit.report import Report, report_of, text_of
from slipstream.stream_audit.rules.delivery import CHECK as DELIVERY
from slipstream.stream_audit.verdict import Outcome
from tests.deployment import ROOT, plain_environment
from tests.gateway.slow_platform import SlowPlatform
from tests.gateway.stream_audit.delaying_receiver import delaying_receiver
from tests.gateway.stream_audit.nginx import RECOMMENDED, SECURE, SERVERS, Nginx, nginx

pytestmark = pytest.mark.system
AT_ONCE = 3
"""More would delay each other, and what delays is what is looked for."""
IDLE_S = 2.0
BRIEF = Plan(slow_events=18, slow_interval_ms=60, fast_events=70)
"""Enough to judge by."""
FOUND = {
    RECOMMENDED: {"certificate_expires"},  # the test's own certificate
    "honouring": set(),
    "buffering": {"buffered", "http_1_0_upstream", "upstream_not_reused"},
    "http10": {"http_1_0_upstream", "upstream_not_reused"},
    "gzip": {"compressed"},
    "buffering_gzip": {"compressed", "buffered"},
    "upstream_closed": {"upstream_not_reused"},
    "client_closed": {"connection_not_reused"},
    "nagle": {"nagle"},
    "impatient": {"cut_when_silent"},
    "hiding": {"headers_lost", "request_id_lost"},
    "tls": {"certificate_expires"},
    "old_tls": {"certificate_expires", "tls_old"},
}


def found(report: Report) -> set[str]:
    return {check.code for check in report.checks if check.outcome is Outcome.FINDING}


async def keys(platform: SlowPlatform, count: int) -> list[str]:
    """A key has two places for such streams, and an organization four."""
    return [(await platform.add_key(new_organization=True)).secret for _ in range(count)]


async def audited(url: str, key: str, ca_file: str | None = None, idle_s: float = 0.0) -> Report:
    """Done again until the machine lets it judge."""
    while True:
        report = report_of(await measure(url, key, msgspec.structs.replace(BRIEF, idle_s=idle_s), ca_file))
        judged = next(check.outcome for check in report.checks if check.check == DELIVERY)
        if judged is not Outcome.NOT_ENOUGH_EVIDENCE:
            return report


@pytest.fixture(scope="module")
async def proxies(platform: SlowPlatform) -> AsyncIterator[Nginx]:
    port = urlsplit(platform.url).port
    assert port is not None
    async with nginx(port) as running:
        yield running


async def test_exactly_what_is_wrong_is_found(platform: SlowPlatform, proxies: Nginx) -> None:
    assert set(FOUND) == {*SERVERS, RECOMMENDED}
    places = asyncio.Semaphore(AT_ONCE)
    with delaying_receiver(urlsplit(proxies.url("nagle")).port or 0) as delayed_port:

        async def one(server: str, key: str) -> tuple[str, Report]:
            url = f"http://127.0.0.1:{delayed_port}" if server == "nagle" else proxies.url(server)
            async with places:
                ca_file = str(proxies.certificate_file) if server in SECURE else None
                return server, await audited(url, key, ca_file, IDLE_S if server == "impatient" else 0.0)

        reports = dict(await asyncio.gather(*map(one, FOUND, await keys(platform, len(FOUND)))))
    assert {server: found(report) for server, report in reports.items()} == FOUND
    for server, report in reports.items():
        assert report.exit_status == (1 if FOUND[server] else 0)
        assert report.proxy, "nginx names itself"
        for check in report.checks:
            assert check.evidence
            assert bool(check.fix) == (check.outcome is Outcome.FINDING)


async def test_a_gateway_without_anything_between_is_found_clean_ten_times_under_load(platform: SlowPlatform) -> None:
    load = [asyncio.create_task(platform.ask(tokens=400, inter_token_s=0.01)) for _ in range(10)]
    places = asyncio.Semaphore(AT_ONCE)

    async def one(key: str) -> Report:
        async with places:
            return report_of(await measure(platform.url, key, BRIEF))

    reports = await asyncio.gather(*map(one, await keys(platform, 10)))
    assert [found(report) for report in reports] == [set()] * 10
    for seen in await asyncio.gather(*load):
        assert seen.status == 200
    report = await audited(platform.url, platform.key)
    assert (found(report), report.exit_status, report.proxy) == (set(), 0, ())


async def test_a_key_is_not_sent_to_whom_nobody_vouches_for(platform: SlowPlatform, proxies: Nginx) -> None:
    report = report_of(await measure(proxies.url("tls"), platform.key, BRIEF))
    assert (found(report), report.exit_status, report.streams) == ({"certificate_untrusted"}, 1, ())


async def command(*arguments: str, key: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream", "tools", "audit-stream", *arguments, cwd=ROOT,
        env={**plain_environment(), "SLIPSTREAM_API_KEY": key},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_the_command_tells_it_and_ends_by_it(platform: SlowPlatform, proxies: Nginx) -> None:
    told, refused, nobody = await asyncio.gather(
        command(proxies.url("http10") + "/v1", "--json", key=platform.key),
        command(platform.url, key="sk-slip-no-such-key"),
        command("http://127.0.0.1:1", key="sk-slip-no-such-key"),
    )
    assert (told[0], told[2]) == (1, "")
    report = msgspec.json.decode(told[1], type=Report)
    assert found(report) >= FOUND["http10"]
    assert [stream.events for stream in report.streams] == [1, 1, 1, 1, 24, 100]
    assert all(list(stream.sent_ms) == sorted(stream.sent_ms) for stream in report.streams)
    assert "proxy_http_version 1.1" in text_of(report)
    assert refused[:2] == (2, "")
    assert "/v1/stream-audit was answered with 401" in refused[2]
    assert nobody[:2] == (2, "")
    assert "cannot connect to 127.0.0.1:1" in nobody[2]
