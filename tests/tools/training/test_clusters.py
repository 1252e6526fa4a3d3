"""Near-copies are found, and a split never puts them on both sides."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tools.training.clusters import clusters
from tools.training.code_files import split


def file(seed: int, lines: int = 60) -> str:
    """Code that shares no line with another seed's."""
    source = random.Random(seed)
    return "".join(f"value_{seed}_{at} = {source.random()}\n" for at in range(lines))


def changed(text: str, every: int) -> str:
    """A near-copy: every so-many-th line differs, and indentation and comments do."""
    lines = text.splitlines()
    return "# copied\n\n" + "".join(
        f"    {'other_' if at % every == 0 else ''}{line}  \n" for at, line in enumerate(lines, 1)
    )


def groups(texts: Mapping[str, str]) -> set[frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name, group in clusters(texts).items():
        found.setdefault(group, set()).add(name)
    return {frozenset(names) for names in found.values()}


def test_copies_with_some_lines_changed_are_one_group() -> None:
    texts = {"a": file(1), "b": changed(file(1), 12), "c": file(2), "d": changed(file(2), 12), "e": file(3)}
    assert groups(texts) == {frozenset("ab"), frozenset("cd"), frozenset("e")}


def test_a_file_contained_in_a_longer_one_is_in_its_group() -> None:
    texts = {"long": file(1, 200) + file(2, 200), "part": file(2, 200), "other": file(3, 200)}
    assert groups(texts) == {frozenset({"long", "part"}), frozenset({"other"})}


def test_a_shared_licence_header_joins_nothing() -> None:
    header = "".join(f"# licence, line {at}\n" for at in range(40))
    assert len(groups({str(seed): header + file(seed) for seed in range(6)})) == 6


def test_groups_are_transitive() -> None:
    texts = {"a": file(1, 100), "b": file(1, 100) + file(2, 100), "c": file(2, 100)}
    assert groups(texts) == {frozenset("abc")}


def test_a_split_keeps_groups_together_and_uses_later_files_only_when_they_are_new() -> None:
    texts = {f"base/{seed}.py": file(seed) for seed in range(200)}
    texts |= {f"package/{seed}.py": changed(file(seed), 15) for seed in range(0, 200, 4)}
    texts |= {f"later/{seed}.py": changed(file(seed), 20) for seed in range(100)}
    texts |= {f"later/new_{seed}.py": file(1000 + seed) for seed in range(5)}
    texts["later/7.py"] = file(2000)  # rewritten, not new
    parts = split(texts, "base", ["later"], seed=3, held_share=0.2)
    group = clusters(texts)
    by_group: dict[str, set[str]] = {}
    for name, part in parts.items():
        by_group.setdefault(group[name], set()).add(part)
    assert all(len(found) == 1 for found in by_group.values())
    assert {name for name, part in parts.items() if part == "new"} == {f"later/new_{seed}.py" for seed in range(5)}
    held = [name for name, part in parts.items() if part == "held"]
    assert 15 < len(held) < 60
    # a group with a copy in a package stays in training: it could not be kept out of it otherwise
    assert all(name.startswith("base/") and int(name[5:-3]) % 4 for name in held)
    assert split(texts, "base", ["later"], seed=3, held_share=0.2) == parts
