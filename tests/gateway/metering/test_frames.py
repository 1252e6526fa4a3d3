from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.metering.journal import frames

records = st.lists(
    st.tuples(st.sampled_from([frames.OPENED, frames.PLACED, frames.CLOSED]), st.binary(min_size=1, max_size=200)),
    min_size=1,
    max_size=8,
)


def _file(entries: list[tuple[int, bytes]]) -> bytes:
    return frames.header() + b"".join(frames.encode(kind, payload) for kind, payload in entries)


def _read(data: bytes) -> list[tuple[int, bytes]]:
    return [(kind, payload) for kind, payload, _ in frames.scan(data).frames][1:]


@given(records)
def test_what_was_written_is_read(entries: list[tuple[int, bytes]]) -> None:
    found = frames.scan(_file(entries))
    assert [(kind, payload) for kind, payload, _ in found.frames][1:] == entries
    assert found.valid_bytes == len(_file(entries))
    assert not found.damaged


@given(records)
def test_a_tail_torn_at_every_byte_of_the_last_record_is_cut(entries: list[tuple[int, bytes]]) -> None:
    whole, before = _file(entries), _file(entries[:-1])
    for size in range(len(before), len(whole)):
        found = frames.scan(whole[:size])
        assert found.valid_bytes == len(before)
        assert len(found.frames) == len(entries)  # the header, and all but the last
        assert not found.damaged


@given(records, st.integers(1, 5_000))
def test_a_tail_of_zeros_is_cut(entries: list[tuple[int, bytes]], zeros: int) -> None:
    # what a file system leaves when it had made the file longer and then lost power
    found = frames.scan(_file(entries) + bytes(zeros))
    assert _read(_file(entries) + bytes(zeros)) == entries
    assert found.valid_bytes == len(_file(entries))
    assert not found.damaged


@given(records, st.data())
def test_a_changed_byte_before_the_last_record_is_reported_and_only_its_record_is_lost(
    entries: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    entries = [*entries, (frames.CLOSED, b"the last")]
    whole = bytearray(_file(entries))
    starts = [len(_file(entries[:index])) for index in range(len(entries))]
    at = data.draw(st.integers(len(frames.header()), starts[-1] - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    hit = max(index for index, start in enumerate(starts) if start <= at)
    found = frames.scan(bytes(whole))
    assert found.damaged
    assert found.valid_bytes == starts[hit]
    assert _read(bytes(whole)) == entries[:hit] + entries[hit + 1 :]
