"""What `up` promises for engines of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES, Objective
from control.slo.objectives import SloConfig
from router.config import SLOS, RouterConfig, SloClass, slo_of
from slipstream.fleet import with_models
from slipstream.processor_promises import (
    LONGER_S,
    PROCESSOR_OBJECTIVES,
    SHORT_S,
    with_promises_of_this_machine,
)
from slipstream.settings import Settings

ROOT = Path(__file__).parents[2]


def promised(**changes: Any) -> Settings:
    return with_promises_of_this_machine(with_models(msgspec.structs.replace(Settings(), **changes)))


def test_a_processor_is_promised_the_time_that_it_needs() -> None:
    settings = promised()
    for tier, prompt_tokens, ttft_s in (
        (Tier.AUTOCOMPLETE, 6_000, LONGER_S),
        (Tier.CHAT, 100, SHORT_S),
        (Tier.CHAT, 6_000, LONGER_S),
        (Tier.CHAT, 200_000, LONGER_S),
    ):
        slo = slo_of(settings.router.slos, tier, prompt_tokens)
        assert slo is not None
        assert slo.ttft_s == ttft_s
    assert set(settings.slo.objectives) == set(PROCESSOR_OBJECTIVES)
    tokens = {LengthClass.SHORT: 4_095, LengthClass.MEDIUM: 16_383, LengthClass.LONG: 100_000}
    for objective in settings.slo.objectives:
        slo = slo_of(settings.router.slos, objective.tier, tokens[objective.length])
        assert slo is not None
        assert slo.ttft_s * 1e3 >= objective.ttft_ms, "the router refuses none that would keep it"
    settings.slo.check()


def test_settings_of_an_operator_stay() -> None:
    mine = (SloClass(Tier.AUTOCOMPLETE, 1 << 31, 0.5),)
    my_objectives = (Objective(Tier.CHAT, LengthClass.SHORT, 300.0),)
    settings = promised(router=RouterConfig(slos=mine), slo=SloConfig(my_objectives))
    assert (settings.router.slos, settings.slo.objectives) == (mine, my_objectives)


def test_a_gpu_keeps_the_defaults() -> None:
    settings = promised(engine=msgspec.structs.replace(Settings().engine, device="cuda"))
    assert (settings.router.slos, settings.slo.objectives) == (SLOS, OBJECTIVES)


def test_the_page_shows_what_a_processor_is_promised() -> None:
    page = (ROOT / "docs" / "concepts" / "slo.md").read_text()
    rows = re.findall(r"^\| both \| ([a-z, ]+) \| (\d+) s \| (\d+) ms \| (\d+) % \|$", page, re.M)
    shown = {
        (tier, LengthClass(length), float(ttft_s) * 1e3, float(tpot_ms), int(percent) / 100)
        for lengths, ttft_s, tpot_ms, percent in rows
        for length in lengths.split(", ")
        for tier in (Tier.CHAT, Tier.AUTOCOMPLETE)
    }
    assert shown == {(each.tier, each.length, each.ttft_ms, each.tpot_ms, each.target) for each in PROCESSOR_OBJECTIVES}
