"""For each operation a body that it takes, and things of an organization that its path may name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any
from uuid import UUID, uuid4

import msgspec

from contracts.cascade import Cascade
from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from control.api.operation import Operation
from control.api.sealed import seal
from control.evals import store as evals_store
from control.fleet import edits
from control.fleet.revision import write
from control.releases import store as releases_store
from control.releases.judge.policy import Policy
from control.releases.judge.thresholds import Thresholds
from control.releases.machine import Event
from control.webhooks.delivery import use_of
from control.webhooks.signature import new_secret
from gateway.auth.keys import ADMIN_PREFIX, mint
from gateway.limits.levels import Level
from storage.audit_log import Actor
from storage.roles import Role
from tests.control.api.people import People
from tests.control.diagnosis.stored_traffic import TRACED_AN_HOUR_AGO

Things = dict[str, object]
CANDIDATE = "candidate"
SPARE_PARTS = frozenset({"model_name", "alias", "pool_name", "replica_id", "fleet_version"})
"""Names of the fleet's parts: they cost it a version, and are made together."""

BODIES: dict[str, dict[str, Any]] = {
    "update_organization": {"name": "renamed {}"},
    "create_organization": {"name": "new {}"},
    "create_member": {"email": "{}@example.com", "name": "New", "role": "viewer"},
    "update_member": {"role": "developer"},
    "create_service_account": {"name": "bot {}", "role": "viewer"},
    "update_service_account": {"role": "developer"},
    "rotate_admin_key": {"overlap_s": 60},
    "create_project": {"name": "project {}"},
    "update_project": {"tiers": ["chat"]},
    "create_key": {"name": "key"},
    "create_adapter": {"model": "wide", "name": "{}", "path": "/srv/adapters/one"},
    "update_key": {"scopes": ["chat"]},
    "rotate_key": {},
    "put_limits": {"max_concurrency": 1_000},
    "put_priorities": {"service_class": "offline"},
    "create_webhook": {"url": "https://example.com/hook"},
    "update_webhook": {"events": ["budget.exhausted"]},
    "rotate_webhook_secret": {},
    "create_price": {"model": "model {}", "input_micro": 200_000, "output_micro": 800_000},
    "create_change": {"name": "chunked prefill {}", "metric": "ttft", "expected_ms": -350},
    "put_model": {"name": "spare", "tier": "chat", "pool": "one", "context_tokens": 4_096},
    "add_model": {
        "model": {"name": "{}", "tier": "chat", "pool": "{}", "context_tokens": 4_096},
        "pool": {"name": "{}", "driver": "openai", "replicas": [{"id": "{}", "url": "http://127.0.0.1:11"}]},
    },
    "put_alias": {"model": "spare"},
    "put_pool": {"name": "spare-pool", "driver": "openai"},
    "put_replica": {"id": "spare-0", "url": "http://127.0.0.1:10", "weight": 2},
    "weigh_replica": {"weight": 0.5},
    "roll_back_fleet": {"version": 1},
    "create_vote": {"choice": "left"},
    "create_eval_run": {"model": "wide", "slices": ["facts"]},
    "create_eval_comparison": {"model": "wide", "baseline_pool": "one", "candidate_pool": "one", "slices": ["facts"]},
    "hold_release": {"reason": "lunch"},
    "resume_release": {"reason": "back"},
    "promote_release": {"reason": "it is good"},
    "roll_back_release": {"reason": "it is not"},
    "update_price": {"valid_until": "2099-01-01T00:00:00Z"},
}
"""`{}` stands for something that was never there before. An operation without a body needs none."""


def at_every_level(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations; one with a level in its path is several, each with the id of that level's own things."""
    for each in operations:
        if "{level}" not in each.path:
            yield each
            continue
        for level in Level:
            yield msgspec.structs.replace(
                each,
                name=each.name.replace("_", f"_{level}_"),
                path=each.path.replace("{level}", level).replace("{subject_id}", f"{{{level}_id}}"),
                positional=each.positional[1:],
                operator_only=level is Level.ORGANIZATION and each.method != "GET",
            )


async def body_for(people: People, operation: Operation, organization: str) -> dict[str, Any] | None:
    """A body the operation takes from a principal of that organization."""
    if operation.body is None:
        return None
    if operation.name == "create_webhook":  # other tests' webhooks must not use up the twenty
        await people.database.execute(
            "DELETE FROM gateway.webhooks WHERE organization_id = $1 AND id <> $2",
            people.organizations[organization],
            (await things_of(people, organization))["webhook_id"],
        )
    if operation.name == "create_adapter":  # nor the organization's adapters
        await people.database.execute(
            "DELETE FROM gateway.adapters WHERE organization_id = $1 AND id <> $2",
            people.organizations[organization],
            (await things_of(people, organization))["adapter_id"],
        )
    if operation.name == "create_admin_key":
        return {"name": "k", "principal_id": str(await people.principal(organization, Role.VIEWER))}
    if operation.name == "start_release":
        return {"model": await _model(people), "candidate_pool": CANDIDATE}
    if operation.name == "roll_back_fleet":
        return {"version": await _version_before_a_spare_pool(people)}
    if operation.name == "approve_cascade":
        return {"comparison": str(await passed_comparison(people))}
    if operation.name == "resume_release":
        await people.database.execute("UPDATE gateway.releases SET state = 'held' WHERE state = 'running'")
    name = operation.service.__name__
    assert name in BODIES, f"tests/control/api/examples.py: an example body for {name}, please"
    filled: dict[str, Any] = _filled(BODIES[name], uuid4().hex)
    return filled


def _filled(value: Any, name: str) -> Any:
    """With that name wherever `{}` stands."""
    if isinstance(value, dict):
        return {key: _filled(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, name) for each in value]
    return value.replace("{}", name) if isinstance(value, str) else value


async def things_of(
    people: People, organization: str, *, fresh: bool = False, only: Collection[str] | None = None
) -> dict[str, object]:
    """Path parameters by name, of things that belong to the organization. fresh: never used by another test; only those
    of these names then, and what costs nothing."""
    known = people.things.get(organization)
    if known is not None and not fresh:
        return known
    things: Things = {
        "organization_id": people.organizations[organization],
        "level": "key", "tier_name": "chat", "month_name": "2026-11", "fleet_version": 1,
    }  # fmt: skip
    for name, make in MAKERS.items():
        if only is None or name in only:
            things[name] = await make(people, things)
    if only is None or SPARE_PARTS & set(only):
        things |= await _spare_parts_of_the_fleet(people)
    if not fresh:
        things |= {"subject_id": things["key_id"], "session_name": things["request_id"]}
        people.things[organization] = things
    return things


async def _project(people: People, things: Things) -> UUID:
    made: UUID = await people.database.fetchval(
        "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, $2) RETURNING id",
        things["organization_id"],
        uuid4().hex,
    )
    return made


async def _key(people: People, things: Things) -> object:
    minted = mint(people.pepper)
    return await people.database.fetchval(
        "INSERT INTO gateway.api_keys (project_id, name, hash, display) VALUES ($1, 'k', $2, $3) RETURNING id",
        things.get("project_id") or await _project(people, things),
        minted.hash,
        minted.display,
    )


async def _member(people: People, things: Things) -> object:
    return await people.database.fetchval(
        "INSERT INTO gateway.principals (organization_id, kind, email, name, role)"
        " VALUES ($1, 'member', $2, 'viewer', 'viewer') RETURNING id",
        things["organization_id"],
        f"{uuid4()}@example.com",
    )


async def _service_account(people: People, things: Things) -> object:
    return await people.database.fetchval(
        "INSERT INTO gateway.principals (organization_id, kind, name, role)"
        " VALUES ($1, 'service_account', $2, 'viewer') RETURNING id",
        things["organization_id"],
        uuid4().hex,
    )


async def _admin_key(people: People, things: Things) -> object:
    """Of a service account: a member's is rotated by that member alone."""
    minted = mint(people.pepper, ADMIN_PREFIX)
    return await people.database.fetchval(
        "INSERT INTO gateway.admin_keys (principal_id, name, hash, display) VALUES ($1, 'k', $2, $3) RETURNING id",
        things.get("service_account_id") or await _service_account(people, things),
        minted.hash,
        minted.display,
    )


async def _webhook(people: People, things: Things) -> UUID:
    made = uuid4()
    await people.database.execute(
        "INSERT INTO gateway.webhooks (id, organization_id, url, description, secret, disabled_at)"
        " VALUES ($1, $2, 'https://example.com', '', $3, now())",
        made,
        things["organization_id"],
        seal(people.pepper, use_of(made), new_secret().encode()),
    )
    return made


async def _delivery(people: People, things: Things) -> object:
    event = await people.database.fetchval(
        "INSERT INTO gateway.webhook_events (organization_id, type, data, to_webhook_id)"
        " VALUES ($1, 'webhook.test', '{}', $2) RETURNING id",
        things["organization_id"],
        things.get("webhook_id") or await _webhook(people, things),
    )
    return await people.database.fetchval(
        "UPDATE gateway.webhook_deliveries SET state = 'failed' WHERE event_id = $1 RETURNING id", event
    )


async def _adapter(people: People, things: Things) -> object:
    return await people.database.fetchval(
        "INSERT INTO gateway.adapters (organization_id, model, name, path)"
        " VALUES ($1, 'm', $2, '/srv/adapters/one') RETURNING id",
        things["organization_id"],
        uuid4().hex,
    )


async def _request(people: People, things: Things) -> str:
    """Of a session with the same name."""
    made = f"req_{uuid4().hex}"
    await people.database.execute(
        "INSERT INTO gateway.request_traces (request_id, organization_id, project_id, key_id, status, total_ms,"
        " phases_ms, session) VALUES ($1, $2, $3, $4, 200, 1, '{}', $1)",
        made,
        things["organization_id"],
        things.get("project_id") or await _project(people, things),
        things.get("key_id"),
    )
    return made


async def _change(people: People, things: Things) -> object:
    return await people.database.fetchval(
        f"WITH traced AS ({TRACED_AN_HOUR_AGO})"
        " INSERT INTO gateway.changes (name, made_at, metric, statistic, expected_ms, window_s)"
        " VALUES ('prefix caching', now() - interval '1 hour', 'ttft', 'p50', -250, 60) RETURNING id"
    )


async def _review(people: People, things: Things) -> object:
    return await people.database.fetchval(
        "INSERT INTO gateway.reviews (model, release, unit, candidate_left, project_id, prompt, baseline, candidate)"
        " VALUES ('m', '', 1, true, $1, 'p', 'b', 'c') RETURNING id",
        things.get("project_id") or await _project(people, things),
    )


async def _run(people: People, things: Things) -> object:
    return await evals_store.queue_run(people.database, model="m", slices={"facts": 1})


async def _comparison(people: People, things: Things) -> object:
    return await evals_store.queue_comparison(
        people.database, model="m", baseline_pool="old", candidate_pool="new", slices=["facts"]
    )


async def _planned_price(people: People, things: Things) -> object:
    """Of a model of its own; it has not begun."""
    return await people.database.fetchval(
        "INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro,"
        " output_micro) VALUES ($1, now() + interval '1 day', 1, 1, 1, 1) RETURNING version",
        f"model {uuid4()}",
    )


async def _model(people: People) -> str:
    """A model of its own, on a pool that serves, beside a pool that could."""
    model = Model(f"model {uuid4()}", Tier.CHAT, "one", 4_096)
    candidate = Pool(CANDIDATE, "openai", (Replica("candidate-0", "http://127.0.0.1:9"),), cache_salt=True)

    def edit(state: DesiredState) -> DesiredState:
        pools = state.pools if state.pool(CANDIDATE) else (*state.pools, candidate)
        return msgspec.structs.replace(state, models=(*state.models, model), pools=pools)

    async with people.database.transaction():
        await releases_store.write_fleet(people.database, edit, Actor.system("tests"), "put")
    return model.name


async def _version_before_a_spare_pool(people: People) -> int:
    """The fleet's, and what came after it is no release's business."""
    version: int = await people.database.fetchval("SELECT max(version) FROM gateway.desired_states")
    spare = Pool(f"spare {uuid4()}", "openai")
    async with people.database.transaction():
        await releases_store.write_fleet(
            people.database,
            lambda state: msgspec.structs.replace(state, pools=(*state.pools, spare)),
            Actor.system("tests"),
            "put",
        )
    return version


async def _running_release(people: People, things: Things) -> object:
    model = await _model(people)
    async with people.database.transaction():
        made = await releases_store.create(
            people.database, "tests", model=model, candidate_pool=CANDIDATE, baseline_pool="one", control_pool="",
            stages=[0.0, 0.05, 1.0], shadow_share=0.1, shadow_least=0, slices=[], margins="{}",
        )  # fmt: skip
        policy = Policy()
        latencies_ms = tuple(20.0 * number for number in range(1, len(policy.quantiles) + 1))
        fixed: dict[str, Any] = {
            "policy": msgspec.json.encode(policy).decode(),
            "thresholds": msgspec.json.encode(Thresholds(ttft_ms=latencies_ms, itl_ms=latencies_ms)).decode(),
        }
        await releases_store.step(people.database, made, Event.BEGIN, reason="begun", actor=None, **fixed)
    return made.id


SPARE = Model("spare", Tier.CHAT, "one", 4_096, aliases=("org/spare",))


async def passed_comparison(people: People, margin: float = 0.02) -> UUID:
    """Of the spare model's cascade, which it is given."""
    pool = Pool("cascade-pool", "openai", (Replica("cascade-0", "http://127.0.0.1:9"),))
    first = Model("spare-first", Tier.CHAT, pool.name, 4_096)
    cascade = Cascade("spare-first", when="always")

    def edit(state: DesiredState) -> DesiredState:
        spare = msgspec.structs.replace(SPARE, cascade=cascade)  # another test may have deleted it
        return edits.put_model(edits.put_model(edits.put_pool(state, pool), first), spare)

    async with people.database.transaction():
        await write(people.database, edit, actor="tests", action="put")
    comparison_id = await evals_store.queue_comparison(
        people.database,
        model="spare",
        baseline_pool="one",
        candidate_pool=pool.name,
        slices=["facts"],
        rule=evals_store.Rule(margin=margin),
    )
    await people.database.execute(
        "UPDATE evals.comparisons SET status = 'done', decision = 'pass', ended_at = now(),"
        """ verdict = '{"decision": "pass", "slices": [{"lower": -0.01}, {"lower": 0.002}]}' WHERE id = $1""",
        comparison_id,
    )
    return comparison_id


async def _spare_parts_of_the_fleet(people: People) -> dict[str, object]:
    """The names of a model, its alias, a pool and its replica, which are there now whatever tests did to them, and that
    nothing else depends upon."""
    pool = Pool("spare-pool", "openai", (Replica("spare-0", "http://127.0.0.1:9"),))

    def put(state: DesiredState) -> DesiredState:
        return edits.put_model(edits.put_pool(state, pool), SPARE)

    async with people.database.transaction():
        await write(people.database, put, actor="tests", action="put")
    return {
        "model_name": "spare",
        "alias": "org/spare",
        "pool_name": "spare-pool",
        "replica_id": "spare-0",
    }


MAKERS: dict[str, Callable[[People, Things], Awaitable[object]]] = {
    "project_id": _project,
    "key_id": _key,
    "member_id": _member,
    "service_account_id": _service_account,
    "admin_key_id": _admin_key,
    "webhook_id": _webhook,
    "adapter_id": _adapter,
    "delivery_id": _delivery,
    "request_id": _request,
    "change_id": _change,
    "review_id": _review,
    "run_id": _run,
    "comparison_id": _comparison,
    "price_version": _planned_price,
    "release_id": _running_release,
}
"""By the name of a path's parameter. Each is given what has been made before it, and uses that."""
