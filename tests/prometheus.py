"""The real Prometheus and its `promtool`.

Without them the tests skip and say so, unless `TEST_PROMETHEUS=required`, as in CI.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import pytest
import yaml

from tests.deployment import ROOT, free_port
from tests.processes import answers
from tests.waiting import GUARD_S

RULES = sorted((ROOT / "infra" / "prometheus" / "rules").glob("*.yml"))
PERIOD = "250ms"
UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000}


def program(name: str) -> Path:
    """`prometheus` or `promtool`, wherever it is. Skips the test."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("TEST_PROMETHEUS") == "required":
            pytest.fail(f"{name} is not installed, and TEST_PROMETHEUS=required (apt-get install prometheus)")
        pytest.skip(f"NOT TESTED: rules and boards with the real {name}, not installed (apt-get install prometheus)")
    return Path(found)


def rules_in(file: Path) -> list[dict[str, Any]]:
    """All rules of a file."""
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def metrics_in(expression: str) -> set[str]:
    """Names of the metrics and recorded series that an expression reads."""
    names = set(
        re.findall(r"(?<![\w:])(?:\w+:)?(?:slipstream|sglang:)[\w:]*", re.sub(r'job=~?"[^"]*"', "", expression))
    )
    return {re.sub(r"_(bucket|sum|count)$", "", name) if ":slip" not in name else name for name in names}


def promtool(*arguments: str) -> None:
    """Run it. Fails the test when it does."""
    ended = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


class Prometheus:
    """A running one. Use `prometheus`."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Instant vector of an expression, now: dicts with `metric` and `value`. A scalar is one without labels."""
        found = await self._get("/api/v1/query", query=expression)
        if found["resultType"] == "scalar":
            return [{"metric": {}, "value": found["result"]}]
        return list(found["result"])

    async def label_values(self, selector: str, label: str) -> set[str]:
        """Values that a label of these series has, as boards' variables ask."""
        return set(await self._get(f"/api/v1/label/{label}/values", **{"match[]": selector}))

    async def rules(self) -> list[dict[str, Any]]:
        """All rules with their health and, of alerts, state."""
        groups = (await self._get("/api/v1/rules"))["groups"]
        return [rule for group in groups for rule in group["rules"]]

    async def firing(self) -> list[dict[str, Any]]:
        """Alerts that fire now: dicts with `labels` and `annotations`."""
        alerts = (await self._get("/api/v1/alerts"))["alerts"]
        return [alert for alert in alerts if alert["state"] == "firing"]

    async def targets(self) -> dict[str, str]:
        """Health (`up`, `down`, `unknown`) of what it scrapes, by instance."""
        active = (await self._get("/api/v1/targets"))["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in active}

    async def _get(self, path: str, **parameters: str) -> Any:
        response = await self._client.get(path, params=parameters)
        answer = response.json()
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]


@contextlib.asynccontextmanager
async def prometheus(targets: Path, *, speed: int = 1) -> AsyncIterator[Prometheus]:
    """Scrape what this list names, four times a second, and evaluate our rules as often; gone at the end.

    speed: by how much shorter than shipped are the windows and waits of the rules.
    """
    path, port = program("prometheus"), free_port()
    with tempfile.TemporaryDirectory(prefix="slip-prometheus-") as name:
        folder = Path(name)
        for file in RULES:
            (folder / file.name).write_text(faster(file.read_text(), speed))
        config = {
            "global": {"scrape_interval": PERIOD, "scrape_timeout": PERIOD, "evaluation_interval": PERIOD},
            "rule_files": [f"{folder}/*.yml"],
            "scrape_configs": [{"job_name": "slipstream", "file_sd_configs": [{"files": [str(targets)]}]}],
        }
        main = folder / "prometheus.yaml"
        main.write_text(yaml.safe_dump(config))
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                path, f"--config.file={main}", f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}", stdout=log, stderr=log,
            )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as session:
                await answers(session, f"http://127.0.0.1:{port}/-/ready", process)
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=GUARD_S) as client:
                yield Prometheus(client)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def faster(rules: str, speed: int) -> str:
    """The same rules with windows, waits and thresholds that are ages so many times shorter; names stay."""

    def shorter(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) * UNITS_MS[match[3]] // speed}ms{match[4]}"

    windows = re.sub(r"(\[)(\d+)([smh])(\])", shorter, rules)
    waits = re.sub(r"(?m)^( +for: )(\d+)([smh])($)", shorter, windows)
    ages = r"(_(?:oldest|timestamp)_seconds(?:\[\w+\])?\)* > )(\d+)"
    return re.sub(ages, lambda match: f"{match[1]}{int(match[2]) / speed:g}", waits)
