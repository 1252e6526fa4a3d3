"""What is rendered for our own engine is what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from contracts.errors import ConfigError
from contracts.settings import load
from slipstream.commands.processes import engine
from slipstream.settings import Settings
from tests.tools.launch.launched import launch_of, pool_of, rendered
from tools.launch.config import LaunchSpeculation

OURS = str(Path(__file__).parents[3] / "models" / "slipstream-code")
LAUNCH = launch_of(model=OURS, shape="")


def test_its_options_and_settings_are_there() -> None:
    drafts = LaunchSpeculation(draft_model=f"{OURS}/draft")
    spec = rendered(
        pool_of("embedded", max_adapters=3), msgspec.structs.replace(LAUNCH, speculation=drafts), speculation=True
    )
    said = CliRunner().invoke(engine, ["--help"]).output
    assert all(each.name in said for each in spec.arguments)
    settings = load(Settings, None, {each.name: each.value for each in spec.environment})
    assert settings.engine.device == "cuda"
    assert settings.engine.scheduler.max_running == 32
    assert settings.engine.lora.max_loaded == 3
    assert settings.engine.speculation.head == f"{OURS}/draft"


@pytest.mark.parametrize(
    ("changed", "cards", "told"),
    [({}, 2, "runs on one GPU"), ({"weights": "fp8"}, 1, "BF16 only"), ({"kv_dtype": "fp8"}, 1, "BF16 only")],
)
def test_what_it_cannot_do_is_refused(changed: dict[str, Any], cards: int, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        rendered(pool_of("embedded"), msgspec.structs.replace(LAUNCH, **changed), cards=cards)
