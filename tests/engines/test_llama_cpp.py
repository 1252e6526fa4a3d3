"""llama.cpp's server: its queue, read from a page that it wrote, and the health check that waits for its model."""

from __future__ import annotations

import pytest

from contracts.errors import EngineFailed
from engines.drivers import registry as drivers
from engines.drivers.base import Load

PAGE = b"""# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 142
llamacpp:prompt_tokens_cached_total 68
llamacpp:tokens_predicted_total 131
llamacpp:requests_processing 4
llamacpp:requests_deferred 2
llamacpp:n_busy_slots_per_decode 2.84783
"""


def test_the_router_reads_its_queue_and_asks_whether_the_model_is_loaded() -> None:
    driver = drivers.get("llama_cpp")
    asked = driver.load()
    assert asked is not None
    assert (asked.path, driver.health().path) == ("/metrics", "/health")
    assert driver.parse_load(PAGE) == Load(running=4, waiting=2)
    with pytest.raises(EngineFailed, match="started with --metrics"):
        driver.parse_load(b"# nothing\n")
    assert not driver.capabilities.salted_cache
