"""What `up` promises for engines of its own."""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from router.config import RouterConfig, SloClass, slo_of
from slipstream.fleet import with_models
from slipstream.settings import Settings
from slipstream.up import CPU_AUTOCOMPLETE_TTFT_S, slos_of_this_machine


def test_a_processor_is_given_the_time_that_it_needs_for_a_file_and_chat_keeps_its_own() -> None:
    slos = slos_of_this_machine(with_models(Settings()))
    autocomplete = slo_of(slos, Tier.AUTOCOMPLETE, 6_000)
    assert autocomplete is not None
    assert autocomplete.ttft_s == CPU_AUTOCOMPLETE_TTFT_S
    assert [slo for slo in slos if slo.tier is Tier.CHAT] == [s for s in RouterConfig().slos if s.tier is Tier.CHAT]


def test_what_an_operator_sets_and_a_gpu_keep_theirs() -> None:
    mine = (SloClass(Tier.AUTOCOMPLETE, 1 << 31, 0.5),)
    asked = msgspec.structs.replace(Settings(), router=RouterConfig(slos=mine))
    assert slos_of_this_machine(with_models(asked)) == mine
    gpu = msgspec.structs.replace(Settings(), engine=msgspec.structs.replace(Settings().engine, device="cuda"))
    assert slos_of_this_machine(with_models(gpu)) == RouterConfig().slos
