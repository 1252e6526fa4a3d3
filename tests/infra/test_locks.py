"""The lock files cover what `pyproject.toml` asks for, by hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.locks import CUDA, LOCKS, Lock, stanzas

ROOT = Path(__file__).parents[2]


def locked(lock: Lock) -> dict[str, str]:
    return stanzas((ROOT / lock.path).read_text())


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_holds_every_dependency_at_a_version_in_its_range(lock: Lock) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for extra in lock.extras:
        asked += project["optional-dependencies"][extra]
    held = locked(lock)
    for requirement in map(Requirement, asked):
        versions = re.findall(r"^\S+==(\S+)", held[canonicalize_name(requirement.name)], re.MULTILINE)
        assert any(map(requirement.specifier.contains, versions)), f"{requirement} is locked at {versions}: `make lock`"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_is_pinned_by_hash_and_names_no_origin(lock: Lock) -> None:
    for name, stanza in locked(lock).items():
        assert "--hash=sha256:" in stanza, name
    assert "://" not in (ROOT / lock.path).read_text()


def test_only_the_cuda_lock_holds_cuda() -> None:
    holding = {lock.name for lock in LOCKS if any(CUDA.fullmatch(name) for name in locked(lock))}
    assert holding == {"engine-cuda"}
