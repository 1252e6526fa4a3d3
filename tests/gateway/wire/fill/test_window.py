"""Windows around a cursor: they fit, they keep what is near, and they stand still while somebody types."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from gateway.wire.fill.window import PREFIX_SHARES, SHARES, STEP_CHARACTERS, Window, step_lines, window
from tests.examples import examples

TEXT = st.lists(st.text("ab (\n", max_size=40), max_size=60).map("\n".join)


def counts(texts: Sequence[str]) -> list[int]:
    """A token for every three characters begun."""
    return [-(-len(text) // 3) for text in texts]


def cost(text: str) -> int:
    """Line by line, as windows are measured."""
    return sum(counts([f"{line}\n" for line in text.split("\n")[:-1]] + [text.split("\n")[-1]]))


@given(TEXT, TEXT, st.integers(0, 400))
@examples(nightly=500)
def test_a_window_fits_and_touches_the_cursor(prefix: str, suffix: str, room: int) -> None:
    shown = window(prefix, suffix, room, counts)

    assert 0 <= shown.start <= len(prefix)
    assert 0 <= shown.end <= len(suffix)
    assert cost(prefix[shown.start :]) + cost(suffix[: shown.end]) <= room
    if cost(prefix) + cost(suffix) <= room and len(prefix) + len(suffix) <= room:
        assert shown == Window(0, len(suffix))


@given(TEXT, TEXT, st.integers(40, 400))
@examples(nightly=300)
def test_both_ends_stand_at_line_ends_unless_one_line_is_too_long(prefix: str, suffix: str, room: int) -> None:
    shown = window(prefix, suffix, room, counts)

    if shown.start and prefix[shown.start - 1] != "\n":
        assert "\n" not in prefix[shown.start :]
        assert (shown.start - prefix.rfind("\n") - 1) % STEP_CHARACTERS == 0 or shown.start == len(prefix)
    if shown.end < len(suffix) and suffix[: shown.end][-1:] not in ("\n", ""):
        assert "\n" not in suffix[: shown.end]


def test_both_sides_longer_than_the_room_share_it_three_to_one() -> None:
    line = "x = y\n"
    shown = window(line * 5_000, line * 5_000, 1_600, counts)

    prefix, suffix = cost((line * 5_000)[shown.start :]), cost((line * 5_000)[: shown.end])
    assert 1_200 - 2 * step_lines(1_200) <= prefix <= 1_600 * PREFIX_SHARES // SHARES
    assert 398 <= suffix <= 400


def test_what_one_side_leaves_is_the_others() -> None:
    line = "x = y\n"
    assert window(line * 5_000, "\n", 1_600, counts).start > 0
    assert cost((line * 5_000)[window(line * 5_000, "\n", 1_600, counts).start :]) > 1_500
    shown = window(line * 10, line * 5_000, 1_600, counts)
    assert shown.start == 0
    assert cost((line * 5_000)[: shown.end]) > 1_400


def test_the_head_stands_while_somebody_types_and_then_moves_by_whole_steps() -> None:
    lines = [f"value_{number} = {number}\n" for number in range(2_000)]
    suffix, room = "".join(lines), 2_400
    starts, ends = [], []
    for typed in range(1_000, 1_200):
        prefix = "".join(lines[:typed]) + "value"
        shown = window(prefix, suffix, room, counts)
        starts.append(prefix.count("\n", 0, shown.start))
        ends.append(shown.end)
    step = step_lines(room * PREFIX_SHARES // SHARES)
    assert all(start % step == 0 for start in starts)
    assert len(set(starts)) <= 200 // step + 2
    assert starts == sorted(starts)
    assert len(set(ends)) == 1


def test_the_end_stands_while_a_short_prefix_grows_by_keystrokes() -> None:
    suffix = "".join(f"value_{number} = {number}\n" for number in range(2_000))
    ends = {window("x" * size, suffix, 1_600, counts).end for size in range(100, 400)}

    assert len(ends) <= 3


def test_a_line_longer_than_the_room_is_cut_near_the_cursor() -> None:
    prefix, suffix = "a" * 10_000, "b" * 10_000
    shown = window(prefix, suffix, 200, counts)

    assert 0 < len(prefix) - shown.start <= 450
    assert 0 < shown.end <= 3 * 56
    assert shown.start % STEP_CHARACTERS == 0
