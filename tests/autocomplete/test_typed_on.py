"""What a user types of a completion is not generated again, and the books of the whole platform say so."""

from __future__ import annotations

from typing import Any

from tests.autocomplete.test_llama_cpp import post, says
from tests.gateway.slow_platform import SlowPlatform

GAP: dict[str, Any] = {"input_prefix": "def total(prices):\n", "input_suffix": "\n\ntotal([1])\n", "n_predict": 40}


async def test_what_is_typed_on_is_answered_from_what_was_written(platform: SlowPlatform) -> None:
    first = await says(platform, *("return sum(prices)\n" * 3), **GAP, prompt="    ")
    second = await post(platform, "/infill", **GAP, prompt="    retu")
    assert second.status == 200
    assert first.json["content"] == "retu" + second.json["content"]
    assert second.headers["x-slipstream-served-from"] == first.request_id

    trace, charge = await platform.trace(second.request_id), await platform.charge(second.request_id)
    assert (trace["served_from"], trace["characters"]) == (first.request_id, len(second.json["content"]))
    assert (charge["finish"], charge["outcome"], charge["billed"]) == ("complete", "exact", True)
    assert (charge["prompt_tokens"], charge["completion_tokens"], charge["amount_micro"]) == (0, 0, 0)
    assert charge["replica_id"] is None
    assert not [record for record in await platform.engine.recorded() if second.request_id in record["rid"]]
    said = await platform.command("requests", "show", second.request_id)
    assert f"answered from the generation of {first.request_id}" in said
    assert "complete, nothing to bill" in said
