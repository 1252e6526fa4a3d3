"""Traces are read as they are, and what is no trace is refused with its line."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from tools.simulator.trace import read_trace
from tools.simulator.workload import at_rate, replayed

MOONCAKE = """{"timestamp":5000,"input_length":1030,"output_length":12,"hash_ids":[7,8,9]}
{"timestamp":6500,"input_length":512,"output_length":0,"hash_ids":[7]}

{"timestamp":5500,"input_length":100,"output_length":3,"hash_ids":[1]}
"""
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.4799600,110,27
"""


def written(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    content = text.encode()
    if path.suffix == ".gz":
        content = gzip.compress(content)
    elif path.suffix == ".xz":
        content = lzma.compress(content)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz", "trace.jsonl.xz"])
def test_mooncake_lines_become_chains_of_whole_blocks(tmp_path: Path, name: str) -> None:
    first, second, third = read_trace(written(tmp_path, MOONCAKE, name))
    assert [first.at_s, second.at_s, third.at_s] == [0.0, 0.5, 1.5]
    assert (first.prompt_tokens, first.output_tokens, len(first.blocks)) == (1_030, 12, 2)
    assert second.blocks == ()
    assert third.blocks == first.blocks[:1]
    assert third.output_tokens == 1  # an engine gives at least one token


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_azure_rows_share_no_prefix(tmp_path: Path, name: str) -> None:
    first, second = read_trace(written(tmp_path, "\ufeff" + AZURE, name))
    assert second.at_s == pytest.approx(0.5)
    assert (first.prompt_tokens, first.output_tokens, len(first.blocks)) == (4_808, 10, 9)
    assert not set(first.blocks) & set(second.blocks)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 0),
        ("hello\n", 1),
        ('{"timestamp":1}\n', 1),
        (MOONCAKE + '{"timestamp":1,"input_length":-4,"output_length":1,"hash_ids":[]}\n', 5),
        (MOONCAKE + '{"timestamp":1,"input_length":1024,"output_length":1,"hash_ids":[1]}\n', 5),
        (MOONCAKE + '{"timestamp":1,"input_length":1024,"output_length":1,"hash_ids":["x","y"]}\n', 5),
        (MOONCAKE + '{"timestamp":1,"input_le', 5),
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.97,1\n", 1),
        (AZURE + "yesterday,1,2\n", 4),
        (AZURE + "2023-11-16 18:17:05.0,12\n", 4),
        (AZURE + "2023-11-16 18:17:05.0,0,2\n", 4),
        (AZURE + "2023-11-16 18:17:05.0,many,2\n", 4),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=f"line {line}:" if line else "holds no requests"):
        read_trace(written(tmp_path, text))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "nowhere")
    whole = {"torn.gz": gzip.compress(MOONCAKE.encode()), "torn.xz": lzma.compress(MOONCAKE.encode())}
    for name, content in whole.items():
        (tmp_path / name).write_bytes(content[:40])
        with pytest.raises(ConfigError, match="cannot be read"):
            read_trace(tmp_path / name)
    damaged = bytearray(gzip.compress(MOONCAKE.encode()))
    damaged[10] ^= 0xFF
    (tmp_path / "damaged.gz").write_bytes(damaged)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "damaged.gz")


def test_copies_share_nothing_and_keep_what_they_share_inside(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, MOONCAKE * 30))
    doubled = replayed(trace, 1.0, 2, seed=3)
    assert len(doubled) == 2 * len(trace)
    mine, other = ([each for each in doubled if each.organization_id.endswith(f"-{copy}")] for copy in (0, 1))
    for copy in (mine, other):
        assert len({block for each in copy for block in each.blocks}) == 2
    assert not {block for each in mine for block in each.blocks} & {block for each in other for block in each.blocks}


def test_a_rate_is_reached_whatever_the_copies(tmp_path: Path) -> None:
    lines = (f'{{"timestamp":{at * 700},"input_length":10,"output_length":1,"hash_ids":[]}}' for at in range(900))
    trace = read_trace(written(tmp_path, "\n".join(lines)))
    for copies in (1, 3):
        arrivals = at_rate(trace, 2.0, 4, copies, seed=0)
        assert arrivals == sorted(arrivals, key=lambda each: each.at_s)
        assert len(arrivals) / arrivals[-1].at_s == pytest.approx(8.0, rel=0.12)
