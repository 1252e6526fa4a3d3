"""The list of mutations fits the code; at night, the gate catches each of them."""

from __future__ import annotations

import ast

import pytest
import redis

from tests.mutations.__main__ import main
from tests.mutations.mutation import ROOT, Mutation, read_mutations

MUTATIONS = read_mutations()


def test_there_are_thirty_faults_with_distinct_names() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 30


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_fits_the_code_and_names_tests_that_exist(mutation: Mutation, valkey_url: str) -> None:
    mutated = mutation.applied_to((ROOT / mutation.file).read_text())

    if mutation.file.endswith(".py"):
        ast.parse(mutated)  # a syntax error would be caught by anything
    if mutation.file.endswith(".lua"):
        folder = (ROOT / mutation.file).parent
        with redis.Redis.from_url(valkey_url) as valkey:
            valkey.script_load(f"{(folder / 'state.lua').read_text()}\n{mutated}")
    assert mutation.tests
    for test in mutation.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_the_gate_catches_every_mutation() -> None:
    assert main([]) == 0
