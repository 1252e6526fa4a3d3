"""Engines' own parameters through the whole pipeline: what an engine receives, and that the books stay right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import COMPLETION, body, harness

OWN: dict[str, Any] = {"top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1, "skip_special_tokens": False}


@pytest.mark.parametrize("driver", ["sglang", "vllm"])
async def test_an_engine_receives_its_own_parameters_and_ours_as_ever(driver: str) -> None:
    async with harness(1, driver) as platform:
        await platform.serve(Client(), body(stream=True, max_tokens=5))
        await platform.serve(
            Client(), body(stream=True, max_tokens=5, **OWN, chat_template_kwargs={"enable_thinking": False})
        )
        plain, told = (msgspec.json.decode(record.body) for record in platform.engines[0].records.values())
        assert told.keys() - plain.keys() == OWN.keys() | {"chat_template_kwargs"}
        assert {name: told[name] for name in OWN} == OWN
        assert told["chat_template_kwargs"] == {"enable_thinking": False}
        assert (told["max_tokens"], told["cache_salt"]) == (5, plain["cache_salt"])
        await platform.engines_idle()
        platform.require_balanced()


@pytest.mark.parametrize("driver", ["sglang", "vllm"])
async def test_a_completion_and_a_gap_of_an_editor_have_them_too(driver: str) -> None:
    async with harness(1, driver) as platform:
        asked = msgspec.json.encode({"model": "m", "prompt": "x = ", "stream": True, "top_k": 3})
        await platform.serve(Client(), asked, COMPLETION)
        [record] = platform.engines[0].records.values()
        assert msgspec.json.decode(record.body)["top_k"] == 3
