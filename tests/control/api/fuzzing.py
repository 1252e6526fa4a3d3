"""Runs schemathesis over one OpenAPI document, every answer checked: valid and invalid requests for every operation,
and sequences in which one uses what another made. Each request has a time limit: none may hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import hypothesis
import msgspec
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.result import Ok

ANSWER_S = 60.0
"""Longest wait for an answer: a guard against one that never comes, not a measure."""
CHECKS_CONFIG = {
    # What a body is too large for is refused before it is read as what it says.
    "negative_data_rejection": {
        "expected-statuses": ["400", "401", "403", "404", "405", "406", "409", "412", "413", "415", "5xx"]
    },
    # Much that a schema allows is refused for what it means: one field that excludes another, a moment that is past.
    "positive_data_acceptance": {
        "expected-statuses": ["2xx", "400", "401", "403", "404", "409", "412", "413", "429", "5xx"]
    },
    "max_response_time": ANSWER_S,
}


def checks() -> list[Any]:
    """All there are. `object_level_authorization` looks at nothing here, as it knows one key: `fuzz_sequences` asks
    another tenant's itself."""
    load_all_checks()
    return [CHECKS.get_one(name) for name in CHECKS.get_all_names()]


def schema_of(document: Mapping[str, Any]) -> Any:
    config = SchemathesisConfig.from_dict({"checks": CHECKS_CONFIG})
    return schemathesis.openapi.from_dict(dict(document), config=config)


@hypothesis.strategies.composite
def _invalid(draw: Any, cases: Any) -> Any:
    """Invalid requests. Some of schemathesis' changes leave a schema that nothing satisfies, add a parameter to the
    query that has no text in a URL and is not sent, or a field with null, which counts as absent."""
    try:
        case = draw(cases)
    except InvalidSchema:
        hypothesis.reject()
    hypothesis.assume(all(map(_has_text, (case.query or {}).values())))
    hypothesis.assume(not isinstance(case.body, dict) or None not in case.body.values())
    return case


def _has_text(value: object) -> bool:
    """Whether requests sends a parameter of this value."""
    return value is not None and (not isinstance(value, list | dict) or any(one is not None for one in value))


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
    schema = schema_of(document)
    headers = {"authorization": f"Bearer {secret}"}
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if not keep(operation.definition.raw["operationId"]):
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
                continue

            cases = operation.as_strategy(generation_mode=mode)

            @hypothesis.settings(
                max_examples=max_examples,
                database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            @hypothesis.given(case=_invalid(cases) if mode is GenerationMode.NEGATIVE else cases)
            def send(case: schemathesis.Case[Any]) -> None:
                nonlocal sent
                sent += 1
                response = case.call(base_url=base_url, headers=headers, timeout=ANSWER_S)
                if response.status_code not in fine:
                    case.validate_response(response, checks=checks(), headers=headers)

            send()
    return sent


class Tenant(msgspec.Struct, frozen=True):
    organization_id: str
    secret: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


def fuzz_sequences(
    document: Mapping[str, Any], base_url: str, tenant: Tenant, other: Tenant, sequences: int, steps: int
) -> int:
    """As `fuzz`, over sequences: what answers name, later requests ask for, also after it was deleted. All that the
    tenant reads, the other tenant asks for too, and must not get."""
    headers, sent = tenant.headers, 0
    found: list[str] = []
    machine: Any = schema_of(document).as_state_machine()

    class Sequences(machine):  # type: ignore[misc]
        def call(self, case: Any, **_: Any) -> Any:
            nonlocal sent
            sent += 1
            response = case.call(base_url=base_url, headers=headers, timeout=ANSWER_S)
            if case.method == "GET" and response.status_code == 200 and tenant.organization_id in response.text:
                stranger = case.call(base_url=base_url, headers=other.headers, timeout=ANSWER_S)
                if stranger.status_code == 200 and tenant.organization_id in stranger.text:
                    found.append(f"another tenant reads it too: {case.as_curl_command()}")
                    raise AssertionError(found[-1])
            return response

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            try:
                case.validate_response(response, checks=checks(), headers=headers)
            except BaseExceptionGroup as failures:
                found.append(str(failures.exceptions))
                raise

    while sent < sequences * steps / 2:
        try:
            Sequences.run(
                settings=hypothesis.settings(
                    max_examples=sequences,
                    stateful_step_count=steps,
                    database=None,
                    suppress_health_check=list(hypothesis.HealthCheck),
                    phases=[hypothesis.Phase.generate],
                )
            )
        # two sequences that began alike and went on differently, as what the server made has other ids each time
        except hypothesis.errors.FlakyStrategyDefinition:
            assert not found, found[0]
    return sent
