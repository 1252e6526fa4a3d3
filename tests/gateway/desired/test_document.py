"""A row is read back as it was written, by this release and by earlier ones."""

from __future__ import annotations

import pytest

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from gateway.desired import document

MODELS = (Model("chat", Tier.CHAT, "gpus", 2_048),)


def test_what_is_written_reads_back_the_same() -> None:
    pools = (Pool("gpus", "openai", continuous_usage_stats=True),)
    assert document.decode(7, document.encode(MODELS, pools)) == DesiredState(7, MODELS, pools)


def test_a_pools_field_is_read_by_its_name_in_earlier_releases() -> None:
    written = document.encode(MODELS, (Pool("gpus", "openai", continuous_usage_stats=True),))
    earlier = written.replace("continuous_usage_stats", "running_usage")
    assert earlier != written
    assert document.decode(7, earlier).pools[0].continuous_usage_stats


def test_how_a_model_fills_gaps_is_read_by_its_names_in_earlier_releases() -> None:
    """All of them, as a gateway of that release wrote them."""
    earlier = (
        '{"models":[{"name":"code","tier":"autocomplete","pool":"gpus","context_tokens":2048,"fim_window":false,'
        '"fim_healing":false,"fim_warm_up":false,"fim_rendered":"pass","fim_supersede":false,"fim_lines":"single",'
        '"fim_rules":"all","fim_reuse":false},{"name":"plain","tier":"chat","pool":"gpus","context_tokens":2048}],'
        '"pools":[{"name":"gpus","driver":"openai"}]}'
    )
    fim = FillInTheMiddle(
        window=False,
        healing=False,
        warm_up=False,
        rendered="pass",
        supersede=False,
        lines="single",
        rules="all",
        reuse=False,
    )
    code, plain = document.decode(7, earlier).models
    assert (code.fim, plain.fim) == (fim, FillInTheMiddle())
    since = {name for name in FillInTheMiddle.__struct_fields__ if f"fim_{name}" not in earlier}
    assert since == {"min_confidence", "min_confidence_by_client", "typed_line"}
    assert document.decode(8, document.encode((code, plain), ())).models == (code, plain)


@pytest.mark.parametrize(
    "text",
    [
        '{"models":[],"pools":[{"name":"a","driver":"b","unknown":1}]}',
        '{"models":[],"pools":[],"unknown":1}',
        '{"models":[],"pools":[1]}',
        '{"models":[],"pools":["running_usage"]}',
        '{"models":[],"pools":null}',
        '{"models":null,"pools":[]}',
        '{"models":[1],"pools":[]}',
        '{"models":[{"name":"a","tier":"chat","pool":"p","context_tokens":1,"fim_colour":1}],"pools":[]}',
        '{"models":[{"name":"a","tier":"chat","pool":"p","context_tokens":1,"fim":1,"fim_reuse":true}],"pools":[]}',
        '{"models":[]}',
        "[]",
    ],
)
def test_what_this_release_cannot_read_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError, match="desired state, version 3: "):
        document.decode(3, text)
