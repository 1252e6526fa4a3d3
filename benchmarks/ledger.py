"""What a usage row costs: journalled by the gateway, then carried into PostgreSQL. Each beside its naive twin.

    journal     CPU per request for opened + placed + closed, 200 requests at a time; twin: fsync after every record
    ledger      CPU per row from the journal's files into a committed table; twin: one INSERT and commit per row

CPU is this process's, all threads, without PostgreSQL's, on the standard event loop. Last line: JSON with `row_cpu_us`
(ledger), `rows_per_s`, `journal_cpu_us` and the twins'. Run: `python -m benchmarks.ledger [--requests N] [--folder D]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from benchmarks.scratch_servers import scratch_postgres
from contracts.dated_request_id import mint
from contracts.generation import Tier
from contracts.usage import Finish, Outcome, Usage
from gateway.metering.config import MeteringConfig
from gateway.metering.journal.journal import Journal
from gateway.metering.journal.records import Closed, Opened, Placed
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.ledger.shipper import Shipper
from gateway.metering.metrics import MeteringMetrics
from infra.local.folders import DataFolder
from storage.engine import lazy_pool

CONCURRENT = 200
PRICE = """
INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro)
VALUES ('slipstream-chat', '2020-01-01Z', 200000, 20000, 250000, 800000)
"""
ROUNDS = 3


class Cost(msgspec.Struct):
    """cpu_us: CPU time of one operation. per_s: operations in a second of wall time."""

    cpu_us: float
    per_s: float


def _request() -> tuple[Opened, Placed, Closed]:
    tenant = str(uuid.uuid4())
    name = mint()
    opened = Opened(
        name,
        0,
        tenant,
        tenant,
        tenant,
        "slipstream-chat",
        Tier.CHAT,
        "/v1/chat/completions",
        True,
        256,
        77,
        time.time(),
    )
    phases = {
        "auth": 0.1,
        "limit": 0.2,
        "queue": 0.0,
        "route": 0.5,
        "engine": 20.1,
        "first_token": 3.0,
        "decode": 300.5,
    }
    closed = Closed(
        opened=opened,
        outcome=Outcome.EXACT,
        finish=Finish.COMPLETE,
        usage=Usage(77, 128, 64, 0),
        status=200,
        closed_at=time.time(),
        replica_id="chat-0",
        phases_ms=phases,
        billed=True,
        pool="chat",
        driver="embedded",
    )
    return opened, Placed(name, 0, "chat-0", "http://127.0.0.1:30000", "embedded", "chat"), closed


async def _measure(count: int, work: Callable[[], Awaitable[None]]) -> Cost:
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    await work()
    return Cost((time.process_time() - cpu_s) / count * 1e6, count / (time.perf_counter() - wall_s))


async def _journalled(journal: Journal, requests: list[tuple[Opened, Placed, Closed]]) -> None:
    async def worker(part: list[tuple[Opened, Placed, Closed]]) -> None:
        for opened, placed, closed in part:
            journal.opened(opened)
            await asyncio.sleep(0)
            journal.placed(placed)
            await asyncio.sleep(0)
            await journal.closed(closed)

    await asyncio.gather(*(worker(requests[start::CONCURRENT]) for start in range(CONCURRENT)))


async def _journalled_naively(path: Path, requests: list[tuple[Opened, Placed, Closed]]) -> None:
    """One fsync per record, on the event loop."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for records in requests:
        for record in records:
            os.write(descriptor, msgspec.msgpack.encode(record))
            os.fsync(descriptor)
            await asyncio.sleep(0)
    os.close(descriptor)


async def _shipped(shipper: Shipper) -> None:
    shipper.start()
    if not await shipper.drain(600):
        raise TimeoutError("rows were not shipped within 600 s")


async def _shipped_naively(ledger: Ledger, rows: list[Closed]) -> None:
    for row in rows:
        await ledger.insert([row], "naive")


def _median(costs: list[Cost]) -> Cost:
    """The median by CPU."""
    return sorted(costs, key=lambda cost: cost.cpu_us)[len(costs) // 2]


async def _run(folder: Path, count: int) -> None:
    data = DataFolder(folder / "data")
    data.prepare()
    async with scratch_postgres(data, durable=True) as url:
        config = MeteringConfig()
        journal = Journal(folder / "journal" / "gateway-0", config, MeteringMetrics(CollectorRegistry()))
        await journal.start()
        journal_costs, ledger_costs, journal_twins, ledger_twins = [], [], [], []
        async with lazy_pool(url, size=2, connect_timeout_s=5) as pool:
            ledger = Ledger(pool)
            await pool.execute(PRICE)
            for number in range(ROUNDS):
                requests = [_request() for _ in range(count)]
                journal_costs.append(await _measure(count, lambda r=requests: _journalled(journal, r)))  # type: ignore[misc]
                shipper = Shipper(journal, ledger, config, MeteringMetrics(CollectorRegistry()))
                ledger_costs.append(await _measure(count, lambda s=shipper: _shipped(s)))  # type: ignore[misc]
                await shipper.stop()
                few = [_request() for _ in range(count // 20)]
                naive = folder / f"naive-{number}"
                journal_twins.append(
                    await _measure(len(few), lambda p=naive, r=few: _journalled_naively(p, r))  # type: ignore[misc]
                )
                rows = [closed for _, _, closed in few]
                ledger_twins.append(await _measure(len(few), lambda r=rows: _shipped_naively(ledger, r)))  # type: ignore[misc]
            stored = await pool.fetchval(
                "SELECT count(*) FROM gateway.usage_events WHERE gateway_id = 'gateway-0' AND amount_micro > 0"
            )
        await journal.stop()
    if stored != count * ROUNDS:
        raise AssertionError(f"{count * ROUNDS} rows journalled, {stored} in the ledger")
    _print(_median(journal_costs), _median(journal_twins), _median(ledger_costs), _median(ledger_twins))


def _print(journal: Cost, journal_twin: Cost, ledger: Cost, ledger_twin: Cost) -> None:
    shown = (
        ("journal: opened, placed, closed", journal, "journal_cpu_us", "journal_requests_per_s"),
        ("  naive: fsync per record", journal_twin, "naive_journal_cpu_us", "naive_journal_requests_per_s"),
        ("ledger: a row, journal to commit", ledger, "row_cpu_us", "rows_per_s"),
        ("  naive: one row per commit", ledger_twin, "naive_row_cpu_us", "naive_rows_per_s"),
    )
    figures: dict[str, float] = {}
    print(f"{'':34}{'CPU us':>10}{'per s':>12}")
    for label, cost, cpu_name, rate_name in shown:
        print(f"{label:34}{cost.cpu_us:10.1f}{cost.per_s:12,.0f}")
        figures |= {cpu_name: round(cost.cpu_us, 2), rate_name: round(cost.per_s)}
    print(json.dumps(figures))


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="per round; three rounds, medians")
    parser.add_argument(
        "--folder", type=Path, help="where to write: the disk that is measured; default: a temporary one"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slip-", dir=arguments.folder) as folder:
        Path(folder).chmod(0o711)  # PostgreSQL runs as another user when this one is root
        asyncio.run(_run(Path(folder), arguments.requests))


if __name__ == "__main__":
    main()
