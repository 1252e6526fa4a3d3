"""The requests of each console page, as in its code: which reads wait for others, and which begin together.

A test compares the keys of `pages` with the console's routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Ask(msgspec.Struct, frozen=True):
    """One read. path: below /admin/v1, or of the console's own below /console/api."""

    path: str
    every_page: bool = False
    """All pages of the list, one after the other."""
    then: tuple[Ask, ...] = ()
    """Requests of the page once this one is answered."""


class View(msgspec.Struct, frozen=True):
    """One state of a page. search: its address' search parameters."""

    search: str
    asks: tuple[Ask, ...]
    operator: bool = False


def ask(path: str, /, *, every_page: bool = False, then: tuple[Ask, ...] = (), **query: object) -> Ask:
    """A request; a list value is repeated in its query."""
    values = {name: value for name, value in query.items() if value is not None}
    text = urlencode(values, doseq=True)
    return Ask(f"/admin/v1{path}" + (f"?{text}" if text else ""), every_page, then)


def states(*queries: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The queries of a page's states."""
    return queries


class Period(msgspec.Struct, frozen=True):
    """Like `periodOf` of console/src/pages/tenants/periods.ts."""

    name: str
    start: datetime
    end: datetime
    bucket: str

    @property
    def before(self) -> Period:
        """The period of the same length just before."""
        return Period(self.name, self.start - (self.end - self.start), self.start, self.bucket)

    @property
    def query(self) -> dict[str, Any]:
        """The query parameters start and end."""
        return {"start": _iso(self.start), "end": _iso(self.end)}


def period_of(name: str, now: datetime) -> Period:
    """The period 24h, 7d, 30d or 90d."""
    hour = now.replace(minute=0, second=0, microsecond=0) + HOUR
    if name == "24h":
        return Period(name, hour - DAY, hour, "hour")
    tomorrow = now.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    return Period(name, tomorrow - int(name[:-1]) * DAY, tomorrow, "day")


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def pages(ids: Mapping[str, str], now: datetime) -> dict[str, list[View]]:
    """The views by route. ids: one of each kind, by the names of the routes' parameters; `largest_projects` and
    `largest_keys`: those that a chart of usage draws, with commas. now: the end of periods."""
    return {**_entry(), **_tenants(ids, now), **_operations(ids, now)}


def _entry() -> dict[str, list[View]]:
    sessions = View("", (Ask("/console/api/sessions"),))
    return {"/sign-in": [], "/welcome": [], "/": [View("", ())], "/account": [sessions]}


def _tenants(ids: Mapping[str, str], now: datetime) -> dict[str, list[View]]:
    own = f"/organizations/{ids['organizationId']}"
    base = "/org/$organizationId"
    shell = ask(own)
    project, key = f"/projects/{ids['projectId']}", f"/keys/{ids['keyId']}"
    projects = ask(f"{own}/projects", every_page=True, limit=1_000)
    accounts = ask(f"{own}/service-accounts", every_page=True, limit=100, disabled="false")

    def of(*asks: Ask, search: str = "") -> View:
        return View(search, (shell, *asks))

    def listed(kind: str, /, **query: Any) -> View:
        search = urlencode({name: value for name, value in query.items() if value is not None})
        return of(ask(f"{own}/{kind}", limit=100, **query), search=search)

    def rules(level: str, kind: str = "limits") -> tuple[Ask, ...]:
        path = f"/{kind}/{level}/{ids[f'{level}Id']}"
        return ask(path), *((ask(f"{path}/counters"),) if kind == "limits" else ())

    day = period_of("24h", now)
    audit: dict[str, Any] = {"organization_id": ids["organizationId"], "limit": 100}
    months = [f"{now:%Y-%m}", f"{now.replace(day=1) - DAY:%Y-%m}"]
    active = ask(f"{project}/keys", every_page=True, limit=100, state="active")
    within = ask(f"{own}/limits/within", limit=100)
    within_project = ask(f"{own}/limits/within", limit=100, project_id=ids["projectId"])
    of_one = (*rules("organization"), *rules("project"), active)
    subjects = ((*rules("organization"), within), (*of_one, within_project), (*of_one, *rules("key")))
    priorities = (
        rules("organization", "priorities"),
        (*rules("organization", "priorities"), *rules("project", "priorities"), active),
    )
    requests = f"{own}/requests"
    of_project, of_key = {"project_id": ids["projectId"]}, {"key_id": ids["keyId"]}
    return {
        "/organizations": [
            View("", (ask("/organizations", limit=100),), operator=True),
            View("name=small", (ask("/organizations", limit=100, name="small"),), operator=True),
        ],
        base: [
            of(
                projects,
                ask(f"{own}/usage", every_page=True, limit=100, bucket="hour", group_by=["model"], **day.query),
                ask(requests, limit=8),
            )
        ],
        f"{base}/projects": [listed("projects"), listed("projects", name="project 09")],
        f"{base}/projects/$projectId": [of(ask(project), ask(f"{project}/keys", limit=100))],
        f"{base}/projects/$projectId/keys/$keyId": [
            of(ask(key, then=rules("key"))),
        ],
        f"{base}/settings": [of()],
        f"{base}/members": [listed("members")],
        f"{base}/service-accounts": [listed("service-accounts")],
        f"{base}/admin-keys": [of(ask(f"{own}/admin-keys", limit=100), accounts)],
        f"{base}/adapters": [of(ask(f"{own}/adapters", limit=100), projects)],
        f"{base}/limits": [of(projects, *each) for each in subjects],
        f"{base}/priorities": [of(projects, *each) for each in priorities],
        f"{base}/usage": _usage(own, ids, now, shell, projects),
        f"{base}/completions": _completions(own, now, shell, projects),
        f"{base}/invoices": [of(ask(f"{own}/invoices/{month}"), search=f"month={month}") for month in months],
        f"{base}/requests": [
            of(ask(requests, limit=100, **query), projects, search=urlencode(query))
            for query in states({}, {"status": "429"}, {"error_code": "engine_failed"}, of_project, of_key)
        ],
        f"{base}/requests/$requestId": [of(ask(f"/requests/{ids['requestId']}"))],
        f"{base}/sessions/$sessionId": [of(ask(f"{own}/sessions/{ids['sessionId']}"))],
        f"{base}/webhooks": [listed("webhooks")],
        f"{base}/webhooks/$webhookId": [
            of(ask(f"/webhooks/{ids['webhookId']}"), ask(f"/webhooks/{ids['webhookId']}/deliveries", limit=100))
        ],
        f"{base}/audit": [
            of(ask("/audit", **audit, **query), search=urlencode(query))
            for query in states({}, {"action": "project.create"}, {"subject_id": ids["projectId"]})
        ],
        f"{base}/prefixes": [
            of(
                ask(f"{own}/prefix-totals", every_page=True, limit=MAX_TOTALS, bucket="hour", **query),
                ask(f"{own}/prefix-totals", every_page=True, limit=MAX_TOTALS, bucket="all", group_by=CAUSES, **query),
                ask(f"{own}/prefix-drops", limit=100),
                search=urlencode(query),
            )
            for query in states({}, {"model": "wide"})
        ],
        f"{base}/objectives": [
            of(*_objectives(own, length, now), search=f"period={name}") for name, length in OBJECTIVE_PERIODS.items()
        ],
        f"{base}/diagnosis": [
            of(ask(f"{own}/diagnosis", **_last(length, now)), search=f"look={look}") for look, length in LOOKS.items()
        ],
        "/prices": [
            View("", (ask("/prices", limit=100),)),
            View("model=wide", (ask("/prices", limit=100, model="wide"),)),
        ],
        "/playground/chat": [View("", (projects,))],
        "/playground/autocomplete": [View("", (projects,))],
    }


CAUSES = ["template", "model", "cause", "part"]
OBJECTIVE_PERIODS = {"1h": HOUR, "24h": DAY, "7d": 7 * DAY, "28d": 28 * DAY}
LOOKS = {"15m": HOUR / 4, "1h": HOUR, "6h": 6 * HOUR, "24h": DAY, "7d": 7 * DAY}


def _last(length: timedelta, now: datetime) -> dict[str, Any]:
    return {"start": _iso(now - length), "end": _iso(now)}


def _objectives(of: str, length: timedelta, now: datetime) -> tuple[Ask, Ask]:
    """The requests of the page of objectives. of: the organization's path; empty for the deployment's."""
    bucket = "minute" if length <= HOUR else "hour" if length < 28 * DAY else "day"
    goodput = ask(f"{of}/slo/goodput", every_page=True, limit=100, bucket=bucket, **_last(length, now))
    return ask(f"{of}/slo"), goodput


def _usage(own: str, ids: Mapping[str, str], now: datetime, shell: Ask, projects: Ask) -> list[View]:
    """Views of every period by every group, and with every filter."""
    found = []
    for name in ("24h", "30d", "90d"):
        period = period_of(name, now)
        for by in (None, "project", "key", "model", "tier"):
            found.append(_usage_view(own, ids, period, by, {}, shell, projects))
        found.append(_usage_view(own, ids, period, None, {}, shell, projects, compare=True))
        found.append(_usage_view(own, ids, period, "key", {"project_id": ids["projectId"]}, shell, projects))
        found.append(_usage_view(own, ids, period, "model", {"key_id": ids["keyId"]}, shell, projects))
    return found


MAX_TOTALS = 5_000


def _totals(
    own: str,
    span: Period,
    by: str | None,
    filters: Mapping[str, object],
    *,
    whole: bool = False,
    then: tuple[Ask, ...] = (),
) -> Ask:
    """The request of the page's `useUsage`."""
    groups = {"group_by": [by]} if by else {}
    bucket = "all" if whole else span.bucket
    query: dict[str, Any] = {"limit": MAX_TOTALS, "bucket": bucket, **groups, **filters, **span.query}
    return ask(f"{own}/usage", every_page=True, then=then, **query)


def _usage_view(
    own: str,
    ids: Mapping[str, str],
    period: Period,
    by: str | None,
    filters: Mapping[str, str],
    shell: Ask,
    projects: Ask,
    *,
    compare: bool = False,
) -> View:
    many = by in ("project", "key")
    spans = [period, *([period.before] if compare else [])]
    asks = [_totals(own, span, None if many else by, filters) for span in spans]
    if many:
        # the largest groups by day, once they are known
        id_of = f"{by}_id"
        narrowed = {**filters, id_of: ids[f"largest_{by}s"].split(",")}
        top = _totals(own, period, by, narrowed)
        asks += [_totals(own, span, by, filters, whole=True, then=(top,) if span is period else ()) for span in spans]
    search = {"period": period.name, **({"by": by} if by else {}), **filters, **({"compare": True} if compare else {})}
    return View(urlencode(search), (shell, projects, *asks))


def _completions(own: str, now: datetime, shell: Ask, projects: Ask) -> list[View]:
    found = []
    for name in ("7d", "30d", "90d"):
        span = period_of(name, now).query
        for by in ("language", "project"):
            groups: tuple[list[str], ...] = ([], ["day"], [by])
            asks = (
                ask(
                    f"{own}/autocomplete",
                    limit=100 if group else None,
                    group_by=group,
                    **span,
                )
                for group in groups
            )
            found.append(View(f"period={name}&by={by}", (shell, projects, *asks)))
    return found


def _operations(ids: Mapping[str, str], now: datetime) -> dict[str, list[View]]:
    def of(*asks: Ask, search: str = "") -> View:
        return View(search, asks, operator=True)

    def listed(path: str, /, **query: Any) -> View:
        return of(ask(path, limit=100, **query), search=urlencode(query))

    organizations = ask("/organizations", every_page=True, limit=1_000)
    release, run = f"/releases/{ids['releaseId']}", f"/evals/runs/{ids['runId']}"
    comparison = f"/evals/comparisons/{ids['comparisonId']}"
    live, models, pools = ask("/fleet/live"), ask("/models"), ask("/pools")
    request = ids["requestId"]
    return {
        "/operations": [
            _deployment(name, length, query, now)
            for name, length in {"1h": HOUR, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}.items()
            for query in states({}, {"tier": "chat"})
        ],
        "/operations/requests": [
            of(ask("/requests", limit=100, **query), organizations, search=urlencode(query))
            for query in states(
                {}, {"status": "429"}, {"error_code": "overloaded"}, {"organization_id": ids["smallId"]}
            )
        ],
        "/operations/requests/$requestId": [of(ask(f"/requests/{request}"), ask(f"/requests/{request}/placements"))],
        "/operations/fleet": [of(ask("/fleet"), live)],
        "/operations/fleet/pools/$pool": [of(ask("/pools/one"), live, models)],
        "/operations/fleet/versions": [listed("/fleet/versions")],
        "/operations/fleet/versions/$version": [of(ask("/fleet/versions/1"), ask("/fleet"))],
        "/operations/slo": [
            of(*_objectives("", length, now), ask("/slo/pools", **_last(length, now)), search=f"period={name}")
            for name, length in OBJECTIVE_PERIODS.items()
        ],
        "/operations/diagnosis": [
            of(ask("/diagnosis", **_last(length, now)), search=f"look={look}") for look, length in LOOKS.items()
        ],
        "/operations/releases": [listed("/releases")],
        "/operations/releases/$releaseId": [
            of(ask(release), ask(f"{release}/evidence"), ask(f"{release}/steps", limit=100))
        ],
        "/operations/evals": [
            of(ask("/evals/scores", limit=100), ask("/evals/comparisons", limit=100)),
            listed("/evals/runs"),
            listed("/evals/comparisons"),
        ],
        "/operations/evals/runs/$runId": [of(ask(run), ask(f"{run}/items", limit=100))],
        "/operations/evals/comparisons/$comparisonId": [of(ask(comparison))],
        "/operations/reviews": [of(ask("/reviews/next"), ask("/reviews"))],
        "/operations/reconciliation": [
            of(ask("/reconciliations", limit=100), ask("/usage-verifications", limit=100)),
        ],
        "/operations/changes": [listed("/changes")],
        "/operations/shadow": [of(ask("/shadow"))],
        "/operations/cascades": [of(models, pools)],
    }


def _deployment(name: str, length: timedelta, query: dict[str, Any], now: datetime) -> View:
    """Like `spanOf` of console/src/pages/operations/overview/choices.ts."""
    longest = {"minute": 6 * HOUR, "hour": 7 * DAY, "day": length}
    bucket = next(name for name, most in longest.items() if length <= most)
    step = timedelta(**{f"{bucket}s": 1})
    end = datetime.fromtimestamp((now.timestamp() // step.total_seconds() + 1) * step.total_seconds(), UTC)
    span: dict[str, Any] = {"start": _iso(end - length), "end": _iso(end), **query}
    parts = ask("/serving", bucket="all", group_by=["tier", "model", "pool"], **span)
    spend = ask("/usage", bucket="all", **span)
    total = ask("/serving", bucket="all", then=(spend, ask("/serving", bucket=bucket, **span), parts), **span)
    return View(urlencode({"period": name, **query}), (total, ask("/slo", **query)), operator=True)
