"""How drivers say which adapter answers, load and unload one, and read what engines say of that. The sentences are
those of SGLang 0.5.23's and vLLM 0.32.0's sources."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.adapter import Adapter
from contracts.errors import AdapterUnavailable
from contracts.generation import Caller, Generation, Sampling, TextPrompt, Tier
from engines.drivers import registry as drivers

ADAPTER = Adapter("6f0c2a4e", "support", "public-name", "/srv/adapters/acme")
NAMED = {
    "embedded": {"model": "m", "lora_path": "lora-6f0c2a4e"},
    "sglang": {"model": "m", "lora_path": "lora-6f0c2a4e"},
    "vllm": {"model": "lora-6f0c2a4e"},
}
ALREADY = {
    "embedded": {"message": "The LoRA adapter 'lora-6f0c2a4e' is already loaded.", "param": "lora_name"},
    "sglang": {"success": False, "error_message": "Failed to load LoRA adapter lora-1 because it is already loaded"},
    "vllm": {"error": {"message": "The lora adapter 'lora-1' has already been loaded. If you want to load …"}},
}
FAILED = {
    # who wrote the adapter's files is quoted
    "embedded": {"message": "adapter_config.json: peft_type must be LORA; got 'LoRA adapter x is already loaded'"},
    "sglang": {"success": False, "error_message": "/srv/adapters/acme does not exist"},
    "vllm": {"error": {"message": "Loading lora lora-1 failed: No adapter found for /srv/adapters/acme"}},
}
NOT_LOADED: dict[str, tuple[int, dict[str, Any]]] = {
    "embedded": (404, {"message": "The following requested LoRA adapters are not loaded: lora-1"}),
    "sglang": (400, {"message": "The following requested LoRA adapters are not loaded: lora-1\nLoaded adapters: []."}),
    "vllm": (404, {"error": {"message": "The model `lora-6f0c2a4e` does not exist.", "code": 404}}),
}


def generation(adapter: Adapter | None) -> Generation:
    caller = Caller("o", "p", "k")
    return Generation("r", caller, Tier.CHAT, "public-name", TextPrompt(("hi",)), Sampling(7), adapter=adapter)


@pytest.mark.parametrize("name", NAMED)
def test_the_engines_name_and_nothing_of_the_clients_is_sent(name: str) -> None:
    driver = drivers.get(name)
    assert driver.capabilities.adapters
    asked = driver.generate(generation(ADAPTER), "m")
    plain = msgspec.json.decode(driver.generate(generation(None), "m").body)
    assert msgspec.json.decode(asked.body) == {**plain, **NAMED[name]}
    assert b"support" not in asked.body
    load, unload = driver.load_adapter("lora-1", "/srv/adapters/acme"), driver.unload_adapter("lora-1")
    assert load is not None
    assert unload is not None
    assert msgspec.json.decode(load.body) == {"lora_name": "lora-1", "lora_path": "/srv/adapters/acme"}
    assert msgspec.json.decode(unload.body) == {"lora_name": "lora-1"}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_said_of_a_load_is_understood(name: str) -> None:
    driver = drivers.get(name)
    assert driver.load_refusal(200, b"Success: LoRA adapter 'lora-1' added successfully.") is None
    assert driver.load_refusal(400, msgspec.json.encode(ALREADY[name])) is None
    said = driver.load_refusal(400, msgspec.json.encode(FAILED[name])) or ""
    assert "/srv/adapters/acme" in said or "peft_type" in said
    for torn in (b"", b"[]", b"\xff", b'{"error_message": 3}'):
        assert driver.load_refusal(500, torn)


@pytest.mark.parametrize("name", NAMED)
def test_an_engine_without_the_adapter_is_told_apart_from_other_errors(name: str) -> None:
    driver = drivers.get(name)
    status, body = NOT_LOADED[name]
    assert isinstance(driver.error(status, msgspec.json.encode(body)), AdapterUnavailable)
    other = {"error": {"message": "The model `m` does not exist.", "code": 404}}
    assert not isinstance(driver.error(404, msgspec.json.encode(other)), AdapterUnavailable)


def test_dialects_without_adapters_load_none() -> None:
    for name in set(drivers.names()) - NAMED.keys():
        driver = drivers.get(name)
        assert not driver.capabilities.adapters
        assert driver.load_adapter("lora-1", "/srv") is None
        assert driver.unload_adapter("lora-1") is None
