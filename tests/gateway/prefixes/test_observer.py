"""The reusable share against a naive recount over all tokens; conversations; bounded memory whatever comes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.prefix import BLOCK_TOKENS
from gateway.prefixes import parts
from gateway.prefixes import sketch as sketch_module
from gateway.prefixes.observer import FORGOTTEN_AT_ONCE_BYTES, Observed, PrefixObserver
from gateway.prefixes.parts import MAX_MESSAGES, Parts, Systems
from gateway.prefixes.sketch import MAX_TEMPLATES, OTHERS, TEMPLATE_IDLE_S, Remembered
from gateway.prefixes.template import PrefixDigests
from tests.examples import examples
from tests.gateway.prefixes.prompts import ACME, OTHER, asked, ids_of, message, tool


def observer(**more: Any) -> PrefixObserver:
    return PrefixObserver(PrefixDigests(b"secret"), **more)


class Naive:
    """Every prompt kept whole, and compared with every other."""

    def __init__(self) -> None:
        self.before: dict[tuple[str, str], list[list[int]]] = {}

    def reusable(self, request: Observed) -> int:
        generation = request.prepared.generation
        ids = ids_of(generation.prompt)  # type: ignore[arg-type]
        known = self.before.setdefault((generation.caller.organization_id, generation.model), [])
        longest = 0
        for other in known:
            shared = 0
            while ids[shared:][:BLOCK_TOKENS] == other[shared:][:BLOCK_TOKENS] and shared + BLOCK_TOKENS <= len(ids):
                shared += BLOCK_TOKENS
            longest = max(longest, shared)
        known.append(ids)
        return longest


TEXTS = st.sampled_from(["alpha " * 15, "beta " * 40, "gamma", "delta " * 80])
REQUESTS = st.tuples(
    st.sampled_from(["You help. " * 20, "You write. " * 9, ""]),
    st.lists(st.sampled_from(["search", "open", "close"]), max_size=3, unique=True),
    st.lists(TEXTS, min_size=1, max_size=5),
    st.sampled_from([ACME, OTHER]),
    st.sampled_from(["m", "n"]),
)


@examples(nightly=400)
@given(st.lists(REQUESTS, max_size=25))
def test_the_share_is_that_of_a_recount_over_all_tokens(requests: list[Any]) -> None:
    naive, mine = Naive(), observer()
    for rules, names, texts, organization_id, model in requests:
        messages = [message("system", rules)] if rules else []
        messages += [message("user" if n % 2 == 0 else "assistant", text) for n, text in enumerate(texts)]
        request = asked(messages, [tool(name) for name in names], organization_id, model)
        sample = mine.observe(request)
        assert sample.reusable_tokens == naive.reusable(request)
        assert sample.prompt_tokens == request.prepared.prompt_tokens
        new = sample.prompt_tokens // BLOCK_TOKENS * BLOCK_TOKENS > sample.reusable_tokens
        assert sample.differing_token == (sample.reusable_tokens if new else None)


@examples(nightly=400)
@given(st.integers(0, 1 << 32), st.integers(20_000, 80_000))
def test_memory_is_bounded_and_what_is_forgotten_is_never_claimed(seed: int, limit_bytes: int) -> None:
    source, naive, mine = random.Random(seed), Naive(), observer(limit_bytes=limit_bytes)
    for number in range(100):
        texts = [source.choice("abcdefg") * source.choice([10, 200, 900]) for _ in range(source.randint(1, 6))]
        messages = [message("user", text) for text in texts]
        request = asked(messages, organization_id=source.choice([ACME, OTHER]))
        sample = mine.observe(request)
        assert sample.reusable_tokens <= naive.reusable(request)
        assert mine.size_bytes <= limit_bytes
        assert mine.size_bytes == sum(sketch.size_bytes for sketch in mine._sketches.values()) >= 0
        if number % 5 == 4:  # a wrong size stays wrong
            assert [sketch.size_bytes for sketch in mine._sketches.values()] == list(
                map(recounted, mine._sketches.values())
            )


def recounted(sketch: sketch_module.Sketch) -> int:
    """Its size, by looking at all it holds."""
    held = {id(request): request for request in sketch._blocks.values()}
    held |= {id(t.last): t.last for t in sketch.templates.values() if t.last is not None}
    return (
        len(sketch._blocks) * sketch_module.ENTRY_BYTES
        + len(sketch._turns) * sketch_module.TURN_BYTES
        + len(sketch.templates) * sketch_module.TEMPLATE_BYTES
        + sum(request.size_bytes for request in held.values())
    )


def test_who_floods_forgets_and_others_keep_what_they_have() -> None:
    mine = observer(limit_bytes=400_000)
    question = [message("system", "You help. " * 40), message("user", "hi")]
    before = mine.observe(asked(question, organization_id=OTHER))
    for n in range(3_000):
        mine.observe(asked([message("user", f"{n:06d}" * 60)]))
    assert mine.size_bytes <= 400_000
    again = mine.observe(asked(question, organization_id=OTHER))
    assert (before.cause, again.cause) == ("first", "whole")


def test_a_tenant_with_a_million_templates_has_sixty_four_and_the_rest() -> None:
    """A thousand here: it is the number kept that is bounded."""
    mine = observer()
    names = {
        mine.observe(asked([message("system", f"{word(n)} rules " * 9)], at_s=float(n) / 100)).template
        for n in range(1_000)
    }
    assert len(names) == MAX_TEMPLATES + 1
    assert OTHERS in names
    assert len(mine._sketches[ACME].templates) == MAX_TEMPLATES + 1


def word(number: int) -> str:
    """In letters: digits would be masked."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def test_known_system_prompts_are_bounded_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SYSTEMS_KNOWN", 2)
    systems = Systems()
    first = systems.of("one")
    for text in ("two", "one", "three"):
        systems.of(text)
    assert systems.of("one") is first
    assert len(systems._known) == 2


def test_a_template_unused_for_an_hour_makes_room() -> None:
    mine = observer()
    for n in range(MAX_TEMPLATES):
        mine.observe(asked([message("system", f"{word(n)} rules")], at_s=0.0))
    later = [message("system", "new rules")]
    assert mine.observe(asked(later, at_s=TEMPLATE_IDLE_S - 1)).template == OTHERS
    assert mine.observe(asked(later, at_s=2 * TEMPLATE_IDLE_S)).template != OTHERS


def test_turns_of_a_conversation_belong_together() -> None:
    mine = observer()
    first, others = [message("system", "Be brief. " * 9), message("user", "why?")], [message("user", "how?")]
    answered = [*first, message("assistant", "because"), message("user", "really?")]
    tooled = [
        *answered,
        message("assistant", ""),
        message("tool", "x"),
        message("assistant", "y"),
        message("user", "z"),
    ]
    samples = [mine.observe(asked(messages)) for messages in (first, others, answered, tooled)]
    assert [sample.turn for sample in samples] == [1, 1, 2, 3]
    assert [sample.session_id for sample in samples] == [samples[n].request_id for n in (0, 1, 0, 0)]


def test_a_conversation_goes_on_though_its_date_has_changed() -> None:
    mine = observer()
    first = mine.observe(asked([message("system", "Today is 2026-11-22"), message("user", "why?")]))
    more = [message("system", "Today is 2026-11-23"), message("user", "why?"), message("assistant", "so"),
            message("user", "ah")]  # fmt: skip
    second = mine.observe(asked(more))
    assert (second.session_id, second.turn) == (first.request_id, 2)


def test_digests_need_the_deployments_key() -> None:
    request = asked([message("user", "text " * 400)])
    mine, again = observer().observe(request), observer().observe(request)
    other = PrefixObserver(PrefixDigests(b"another secret")).observe(request)
    assert mine.blocks == again.blocks
    assert len(mine.blocks) == request.prepared.prompt_tokens // 512
    assert not set(mine.blocks) & set(other.blocks)
    assert mine.template != other.template


def test_a_conversation_of_too_many_messages_is_not_known_again() -> None:
    mine = observer()
    history = [message("user", f"{n}") for n in range(MAX_MESSAGES)]
    mine.observe(asked(history))
    sample = mine.observe(asked([*history, message("user", "more")]))
    assert (sample.turn, sample.cause) == (1, "new_text")
    assert sample.session_id == sample.request_id
    assert sample.reusable_tokens > 0


@pytest.mark.parametrize("size", [3, 600])
def test_more_parts_than_are_compared_are_new_text(size: int) -> None:
    mine = observer()
    history = [message("user", f"message {n}") for n in range(size)]
    mine.observe(asked(history))
    sample = mine.observe(asked([*history, message("user", "more of it " * 20)]))
    assert sample.cause == ("continued" if size == 3 else "new_text")
    assert sample.turn == 2


def test_little_is_forgotten_at_once_and_a_text_counts_as_what_it_takes() -> None:
    limit_bytes = 4 * FORGOTTEN_AT_ONCE_BYTES
    mine, largest_drop = observer(limit_bytes=limit_bytes), 0
    for n in range(2_500):
        before_bytes = mine.size_bytes
        mine.observe(asked([message("user", f"{n:06d}" * 60)]))
        largest_drop = max(largest_drop, before_bytes - mine.size_bytes)
    assert 0 < largest_drop <= FORGOTTEN_AT_ONCE_BYTES
    latin, wide = (Remembered(Parts(), character * 1_000).size_bytes for character in "a€")
    assert 900 < wide - latin < 1_200
