"""Every operation, asked by every role of a tenant and of the operating organization, known by every kind of
credential, of things of every kind of owner: what happens is what `allowed.txt` says, and nothing is missing there.

A new operation or role fails here until it is written down; the failure says the line as things are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from control.api.events.route import EVENTS
from control.api.events.topics import Topic
from control.api.operation import Operation
from storage.roles import Role
from tests.control.api.allowed import FILE, LETTERS, Cell, Row, line_of, listed
from tests.control.api.examples import SPARE_PARTS, body_for, things_of
from tests.control.api.people import Client, Credential, People
from tests.control.api.test_every_endpoint import EACH, ask, ask_wrongly

OWNED = frozenset({
    "organization_id", "project_id", "key_id", "member_id", "service_account_id", "admin_key_id", "webhook_id",
    "adapter_id", "delivery_id", "request_id", "session_name",
})  # fmt: skip
"""Parameters that name something of an organization; the others' is the deployment's, or nobody's."""
CHOSEN = frozenset({"tier_name", "month_name"})
"""Parameters that name no thing."""
NUMBERS = frozenset({"fleet_version", "price_version"})
ANSWERED, NOT_FOUND, REFUSED = "answered", "not found", "refused"
MEANT = (ANSWERED, NOT_FOUND, REFUSED)
COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "ours": {"tenant_own": ("ours",), "tenant_others": ("theirs", "disabled", "nobody")},
    "operator": {
        "operator_own": ("operator",),
        "operator_others": ("theirs", "disabled"),
        "operator_nobodys": ("nobody",),
    },
}
"""By who asks: whose things a column is about. All of one column are treated alike."""


def owners_of(operation: Operation, organization: str) -> Iterator[str]:
    """Whose things an operation may be asked of, by somebody of that organization."""
    yield organization
    if OWNED & set(operation.parameters):
        yield from ("theirs", "disabled")
    names_what_it_makes = operation.method == "PUT" and UUID not in operation.parameters.values()
    if set(operation.parameters) - CHOSEN and not names_what_it_makes:
        yield "nobody"


async def values_for(people: People, operation: Operation, owner: str, *, fresh: bool = False) -> dict[str, object]:
    if owner != "nobody":
        return await things_of(people, owner, fresh=fresh, only=operation.parameters if fresh else None)
    known = await things_of(people, "ours")
    return {
        name: known[name]
        if name in CHOSEN
        else uuid4()
        if kind is UUID
        else 10**6
        if name in NUMBERS
        else f"none-{uuid4().hex}"
        for name, kind in operation.parameters.items()
    }


def outcome_of(operation: Operation, answer: Any) -> str:
    """What an answer means; its own code for one that means neither that somebody may nor that they may not."""
    code: str = answer.body["error"]["code"] if answer.status >= 400 else ""
    if answer.status == operation.status or code == "router_unavailable":  # there is none here to be asked
        return ANSWERED
    if operation.remote and answer.status == 400:  # it wants the address of an engine
        return ANSWERED
    return {(403, "permission_denied"): REFUSED, (404, "not_found"): NOT_FOUND}.get((answer.status, code), code)


def credentials_at(turn: int, *, all_of_them: bool) -> tuple[Credential, ...]:
    """All, beginning with another one at each turn; or the first of these."""
    credentials = tuple(Credential)
    at = turn % len(credentials)
    return (*credentials[at:], *credentials[:at]) if all_of_them else credentials[at : at + 1]


async def outcome(
    people: People, operation: Operation, organization: str, owner: str, role: Role, known_by: Sequence[Credential]
) -> str:
    """What becomes of one request, by whichever of these credentials; the first makes the one that changes something,
    where it may."""
    clients: list[Client] = [await people.as_(role, organization, credential) for credential in known_by]
    place = (operation.name, organization, owner, role)
    foreign = owner == "nobody" or (organization == "ours" and owner != "ours")
    consumed = organization == owner == "operator" and bool(SPARE_PARTS & set(operation.parameters))
    values = await values_for(people, operation, owner, fresh=consumed)
    if operation.method == "GET" or foreign:
        body = None if operation.method == "GET" else await body_for(people, operation, organization)
        asked = [ask(client, operation, values, body) for client in clients]
        # an organization has two places for expensive reads
        answers = [await each for each in asked] if operation.expensive else list(await asyncio.gather(*asked))
        outcomes = {outcome_of(operation, answer) for answer in answers}
        assert len(outcomes) == 1, (place, answers)
        return outcomes.pop()
    # a body or query that is wrong on purpose: who may goes on to it, and changes nothing
    answers = await asyncio.gather(*(ask_wrongly(client, operation, values) for client in clients))
    stops = {(answer.status, answer.body["error"]["code"]) for answer in answers}
    assert len(stops) == 1, (place, answers)
    if stops == {(403, "permission_denied")}:
        return REFUSED
    assert stops == {(400, "unknown_parameter")}, (place, answers)
    values = await values_for(people, operation, owner, fresh=True)
    body = await body_for(people, operation, owner)
    answer = await ask(clients[0], operation, values, body)
    return outcome_of(operation, answer)


def test_every_role_has_a_letter() -> None:
    assert set(LETTERS.values()) == set(Role)
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_every_operation_is_listed_once_and_nothing_else_is() -> None:
    lines = [line for line in FILE.read_text().splitlines() if line.startswith("/")]
    places = [" ".join(line.partition("|")[0].split()) for line in lines]
    assert places == sorted([*(f"{each.path} {each.method}" for each in EACH), *map(events_place, Topic)])


def events_place(topic: Topic) -> str:
    """The stream of news stands beside the operations: what it needs is each topic's."""
    return f"{EVENTS.path}?topics={topic.value} {EVENTS.method}"


@pytest.mark.parametrize("organization", COLUMNS)
async def test_who_hears_which_news_is_what_is_listed(organization: str, people: People) -> None:
    rows, column = listed(), next(iter(COLUMNS[organization]))

    async def status(client: Client, method: str, path: str) -> int:
        async with client.opened(method, path) as response:
            return response.status

    for number, topic in enumerate(Topic):
        path, method = events_place(topic).split()
        clients = [
            await people.as_(role, organization, *credentials_at(turn, all_of_them=False))
            for turn, role in enumerate(Role, number)
        ]
        # all roles at once: a stream's head waits until its gateway has looked for news
        statuses = await asyncio.gather(*(status(client, method, path) for client in clients))
        found = dict(zip(Role, statuses, strict=True))
        assert set(statuses) <= {200, 403}, (topic, found)
        answered = frozenset(role for role in Role if found[role] == 200)
        assert getattr(rows[method, path], column) == Cell(answered), (topic, found)


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("organization", COLUMNS)
async def test_what_happens_is_what_is_listed(organization: str, everything: bool, people: People) -> None:
    """In the gate one credential a request and one owner a column, by turns: each operation meets every credential and
    role."""
    rows, odd, wrong = listed(), [], []
    for number, operation in enumerate(EACH):
        found: dict[str, Cell | None] = {}
        for column, owners in COLUMNS[organization].items():
            cells, possible = set(), [each for each in owners if each in owners_of(operation, organization)]
            chosen = possible if everything or not possible else [possible[number % len(possible)]]
            for owner in chosen:
                outcomes = {
                    role: await outcome(
                        people, operation, organization, owner, role, credentials_at(turn, all_of_them=everything)
                    )
                    for turn, role in enumerate(Role, number + owners.index(owner))
                }
                odd += [(operation.name, owner, *each) for each in outcomes.items() if each[1] not in MEANT]
                cells.add(Cell.of(outcomes, answered=ANSWERED, not_found=NOT_FOUND))
            assert len(cells) <= 1, f"{operation.name}: one column, and not alike: {[str(cell) for cell in cells]}"
            found[column] = cells.pop() if cells else None
        row = rows.get((operation.method, operation.path), Row())
        if found != {column: getattr(row, column) for column in found}:
            wrong.append(line_of(operation, msgspec.structs.replace(row, **found)))
    assert not odd, "neither done nor refused: is the example in examples.py one?"
    assert not wrong, f"in {FILE.name} these lines differ, and would be, as things are:\n{''.join(sorted(wrong))}"


def test_a_tenant_does_nothing_to_anothers_things() -> None:
    """Of the list itself, so that no line is written down that says otherwise."""
    for place, row in listed().items():
        assert row.tenant_others is None or not row.tenant_others.answered, place


@pytest.mark.parametrize("credential", Credential)
async def test_nobody_of_a_disabled_organization_does_anything(credential: Credential, people: People) -> None:
    owner = await people.as_(Role.OWNER, "disabled", credential)
    for operation in EACH:
        answer = await ask_wrongly(owner, operation, await things_of(people, "disabled"))
        assert (answer.status, answer.body["error"]["code"]) == (403, "tenant_disabled"), operation.name
