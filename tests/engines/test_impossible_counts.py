"""What an engine tells of itself is computed with for everybody: numbers that cannot be are refused where they are
read."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from contracts.desired_state import Pool, Replica
from contracts.errors import EngineFailed
from control.billing import reconciliation
from engines.drivers import registry as drivers
from engines.drivers.base import EngineRequest
from engines.drivers.served_models import parse_served_models

HUGE = "1" + "0" * 400
FIELDS = (
    "num_running_reqs",
    "num_waiting_reqs",
    "num_used_tokens",
    "max_total_num_tokens",
    "max_running_requests",
    "num_retracted_requests",
)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["-1", HUGE, "1e300"])
@pytest.mark.parametrize("driver", ["sglang", "embedded"])
def test_a_load_report_with_an_impossible_number_is_none(driver: str, field: str, value: str) -> None:
    told = {"num_running_reqs": "0", "num_waiting_reqs": "0", field: value}
    rank = ",".join(f'"{name}":{number}' for name, number in told.items())
    with pytest.raises(EngineFailed):
        drivers.get(driver).parse_load(f'{{"loads":[{{{rank}}}]}}'.encode())


@pytest.mark.parametrize("field", ["num_running_reqs", "num_waiting_reqs", "max_running_requests"])
@pytest.mark.parametrize(("value", "can_be"), [(100_000, True), (100_001, False), (2**53, False)])
def test_no_engine_has_so_many_requests(field: str, value: int, can_be: bool) -> None:
    told = {"num_running_reqs": 0, "num_waiting_reqs": 0, field: value}
    report = msgspec.json.encode({"loads": [told]})
    if can_be:
        drivers.get("sglang").parse_load(report)
    else:
        with pytest.raises(EngineFailed, match="an impossible number"):
            drivers.get("sglang").parse_load(report)


@pytest.mark.parametrize("field", ["promised_tokens", "output_reserve", "step_tokens", "share_behind"])
@pytest.mark.parametrize("value", ["-1", HUGE, "1e300", "null"])
def test_what_only_the_embedded_engine_reports_is_held_to_the_same(field: str, value: str) -> None:
    rank = f'{{"num_running_reqs":0,"num_waiting_reqs":0,"{field}":{value}}}'
    with pytest.raises(EngineFailed):
        drivers.get("embedded").parse_load(f'{{"loads":[{rank}]}}'.encode())


@pytest.mark.parametrize("driver", ["sglang", "embedded", "tensorrt_llm"])
def test_a_report_that_is_nested_without_end_is_none(driver: str) -> None:
    with pytest.raises(EngineFailed):
        drivers.get(driver).parse_load(b'{"loads":' * 50_000)
    with pytest.raises(EngineFailed):
        parse_served_models(b'{"data":' * 50_000)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300"])
def test_a_page_with_an_impossible_number_is_not_read(value: str) -> None:
    vllm: Any = drivers.get("vllm")
    with pytest.raises(EngineFailed):
        vllm.parse_load(f"vllm:num_requests_running {value}\nvllm:num_requests_waiting 0\n".encode())
    with pytest.raises(EngineFailed):
        vllm.parse_counts(f"vllm:prompt_tokens_total {value}\nvllm:generation_tokens_total 1\n".encode())


class Connections:
    """One engine is well, one is not."""

    def __init__(self, keys: object) -> None:
        pass

    async def fetch(self, url: str, request: EngineRequest, *args: Any, **more: Any) -> tuple[int, bytes]:
        if "broken" in url:
            raise RecursionError
        value = "NaN" if "hostile" in url else "7"
        return 200, f"vllm:prompt_tokens_total {value}\nvllm:generation_tokens_total 1\n".encode()

    async def close(self) -> None:
        pass


class Keys:
    def follow(self, pools: Any) -> None:
        list(pools)


async def test_one_engines_counters_cost_no_other_engine_its_reconciliation() -> None:
    replicas = tuple(Replica(name, f"http://{name}") for name in ("good", "hostile", "broken"))
    pool = Pool("p", "vllm", replicas)
    keys: Any = Keys()
    with patch.object(reconciliation, "EngineConnections", Connections):
        found = await reconciliation.EngineCounters(lambda: keys)([(pool, replica) for replica in replicas])
    assert list(found) == ["good"]
