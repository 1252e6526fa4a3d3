"""Runs schemathesis over one OpenAPI document, every answer checked: valid and invalid requests for every operation,
and sequences in which one uses what another made. Each request has a time limit: none may hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import hypothesis
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

ANSWER_S = 60.0
"""Longest wait for an answer: a guard against one that never comes, not a measure."""
LEFT_OUT = {
    # Much that a schema allows is refused for what it means: a name that is taken, an id that is nobody's.
    "positive_data_acceptance",
    # It needs the answers' times, which are not judged on a busy machine.
    "max_response_time",
    # It needs a second tenant's credentials; tests/gateway/admin/test_access.py asks everything of everybody.
    "object_level_authorization",
}


def checks() -> list[Any]:
    """Those that are run."""
    load_all_checks()
    return [CHECKS.get_one(name) for name in CHECKS.get_all_names() if name not in LEFT_OUT]


def fuzz(
    document: Mapping[str, Any],
    base_url: str,
    secret: str,
    max_examples: int,
    *,
    keep: Callable[[str], bool] = lambda _operation: True,
    also_fine: Iterable[int] = (),
) -> int:
    """Returns how many requests were sent; raises what schemathesis finds. Blocks: run it on a thread.

    keep: which operations, by their id. also_fine: statuses of 500 and more that say nothing bad.
    """
    fine, sent = frozenset(also_fine), 0
    schema = schemathesis.openapi.from_dict(dict(document))
    headers = {"authorization": f"Bearer {secret}"}
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if not keep(operation.definition.raw["operationId"]):
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
                continue

            @hypothesis.settings(
                max_examples=max_examples,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def send(case: schemathesis.Case[Any]) -> None:
                nonlocal sent
                sent += 1
                response = case.call(base_url=base_url, headers=headers, timeout=ANSWER_S)
                if response.status_code not in fine:
                    case.validate_response(response, checks=checks(), headers=headers)

            send()
    return sent


def fuzz_sequences(document: Mapping[str, Any], base_url: str, secret: str, sequences: int, steps: int) -> int:
    """As `fuzz`, over sequences: what answers name, later requests ask for, also after it was deleted."""
    headers, sent = {"authorization": f"Bearer {secret}"}, 0
    machine: Any = schemathesis.openapi.from_dict(dict(document)).as_state_machine()

    class Sequences(machine):  # type: ignore[misc]
        def call(self, case: Any, **_: Any) -> Any:
            nonlocal sent
            sent += 1
            return case.call(base_url=base_url, headers=headers, timeout=ANSWER_S)

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            case.validate_response(response, checks=checks(), headers=headers)

    Sequences.run(
        settings=hypothesis.settings(
            max_examples=sequences,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
    )
    return sent
