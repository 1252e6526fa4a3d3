"""Runs schemathesis over one OpenAPI document: valid and invalid requests for every operation, every answer checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import hypothesis
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

LEFT_OUT = {
    # Much that a schema allows is refused for what it means: a name that is taken, an id that is nobody's.
    "positive_data_acceptance",
    # For sequences of operations; single ones are run here.
    "use_after_free", "ensure_resource_availability", "object_level_authorization",
    "max_response_time",
}  # fmt: skip


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
    load_all_checks()
    checks: list[Any] = [CHECKS.get_one(name) for name in CHECKS.get_all_names() if name not in LEFT_OUT]
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
                response = case.call(base_url=base_url, headers=headers)
                if response.status_code not in fine:
                    case.validate_response(response, checks=checks, headers=headers)

            send()
    return sent
