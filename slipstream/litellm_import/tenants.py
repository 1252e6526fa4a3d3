"""Maps LiteLLM's tables to organizations, projects and keys. Pure.

    team                             its own organization, with the project `default`
    organization, team in it         organization, project
    project of a team                project of the team's organization
    key                              key, by its hash, in its team's project
    key of a user without a team     key in the user's project of one organization for all such users
    key with its own models          key in its own project, which may use only these

A team without an organization is a customer: it has a budget, and shares its prompts with no other team. An imported
key never gets more rights than before: a key that would is left out and noted.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from contracts.printable import printable
from gateway.auth.scopes import Scope
from gateway.limits.levels import Limits
from slipstream.litellm_import.plan import NAME_CHARACTERS, Notes, PlannedKey, PlannedOrganization, PlannedProject

DEFAULT_PROJECT = "default"
DASHBOARD = "litellm-dashboard"
"""The team of the keys that LiteLLM's own pages create at each sign-in."""
ALL_MODELS, TEAM_MODELS, NO_MODELS = frozenset({"all-proxy-models", "*"}), "all-team-models", "no-default-models"
MONTH = re.compile(r"1mo|(28|29|30|31)d")
RATES = {
    "requests_per_minute": "rpm_limit",
    "tokens_per_minute": "tpm_limit",
    "max_concurrency": "max_parallel_requests",
}
SCOPES = {
    "llm_api_routes": frozenset({Scope.CHAT, Scope.COMPLETIONS, Scope.EMBEDDINGS, Scope.MODELS}),
    "openai_routes": frozenset({Scope.CHAT, Scope.COMPLETIONS, Scope.EMBEDDINGS, Scope.MODELS}),
    "anthropic_routes": frozenset({Scope.CHAT}),
    "/chat/completions": frozenset({Scope.CHAT}),
    "/responses": frozenset({Scope.CHAT}),
    "/messages": frozenset({Scope.CHAT}),
    "/completions": frozenset({Scope.COMPLETIONS}),
    "/embeddings": frozenset({Scope.EMBEDDINGS}),
    "/rerank": frozenset({Scope.EMBEDDINGS}),
    "/models": frozenset({Scope.MODELS}),
    "info_routes": frozenset({Scope.MODELS}),
}
"""Scopes by entry of `allowed_routes`, without `/v1`."""
UNUSED_OF_KEY = (
    "aliases", "config", "router_settings", "permissions", "metadata", "soft_budget", "model_max_budget",
    "budget_limits", "policies", "access_group_ids", "object_permission_id", "allowed_cache_controls", "agent_id",
    "auto_rotate",
)  # fmt: skip
UNUSED_OF_TENANT = (
    "metadata", "soft_budget", "model_max_budget", "budget_limits", "model_rpm_limit", "model_tpm_limit",
    "router_settings", "policies", "access_group_ids", "object_permission_id", "model_id", "members_with_roles",
    "team_member_permissions", "default_team_member_models", "allow_team_guardrail_config", "description",
)  # fmt: skip
"""Fields without a counterpart, which are noted if they have a value."""

Row = Mapping[str, Any]


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of LiteLLM's database, by column. others: numbers of rows of the tables without a counterpart."""

    organizations: list[dict[str, Any]] = []
    teams: list[dict[str, Any]] = []
    projects: list[dict[str, Any]] = []
    users: list[dict[str, Any]] = []
    keys: list[dict[str, Any]] = []
    budgets: list[dict[str, Any]] = []
    others: dict[str, int] = {}


class _Home(msgspec.Struct, frozen=True):
    """The project that gets keys. divisible: whether a second project has the same limits, its organization's."""

    organization: PlannedOrganization
    project: PlannedProject
    divisible: bool


class Tenants:
    """One import. models: models' names by name or alias. personal: the organization for keys without a team."""

    def __init__(self, tables: Tables, models: Mapping[str, str], personal: str, now: datetime, notes: Notes) -> None:
        self._tables = tables
        self._models = models
        self._now = now
        self._notes = notes
        self._budgets = {row["budget_id"]: row for row in tables.budgets}
        self._users = {row["user_id"]: row for row in tables.users}
        self._taken: set[str] = set()
        self._made: list[PlannedOrganization] = []
        self._personal_name = personal
        self._personal: PlannedOrganization | None = None
        self._organizations: dict[str, PlannedOrganization] = {}
        self._teams: dict[str, _Home] = {}
        self._projects: dict[str, _Home] = {}
        self._project_of_user: dict[str, PlannedProject] = {}

    def planned(self) -> list[PlannedOrganization]:
        """All organizations, with their projects and keys."""
        for row in self._tables.organizations:
            self._organizations[row["organization_id"]] = self._organization(row, "organization")
        for row in self._tables.teams:
            self._teams[row["team_id"]] = self._team(row)
        for row in self._tables.projects:
            self._add_project(row)
        dashboard = [row for row in self._tables.keys if row.get("team_id") == DASHBOARD]
        for row in self._tables.keys:
            if row not in dashboard:
                self._add_key(row)
        self._note_the_rest(len(dashboard))
        return self._made

    def _organization(self, row: Row, kind: str) -> PlannedOrganization:
        alias, id_ = row.get(f"{kind}_alias"), row[f"{kind}_id"]
        where = f"{kind} {alias or id_}"
        made = PlannedOrganization(
            name=_unique(alias, id_, kind, self._taken),
            models=self._models_of(row.get("models"), where),
            limits=self._limits_of(row, where),
            disabled=bool(row.get("blocked")),
        )
        self._notes.unused(where, dict(row), UNUSED_OF_TENANT)
        self._made.append(made)
        return made

    def _team(self, row: Row) -> _Home:
        owner = self._organizations.get(row.get("organization_id") or "")
        if owner is None:
            owner = self._organization(row, "team")
            return _Home(owner, owner.project(DEFAULT_PROJECT, models=owner.models, keys=[]), divisible=True)
        where = f"team {row.get('team_alias') or row['team_id']}"
        name = _unique(row.get("team_alias"), row["team_id"], "team", {*owner.projects, DEFAULT_PROJECT})
        self._notes.unused(where, dict(row), UNUSED_OF_TENANT)
        project = owner.project(
            name,
            models=_narrower(owner.models, self._models_of(row.get("models"), where)),
            limits=self._limits_of(row, where),
            disabled=bool(row.get("blocked")),
            keys=[],
        )
        return _Home(owner, project, divisible=not project.limits)

    def _add_project(self, row: Row) -> None:
        where = f"project {row.get('project_alias') or row['project_id']}"
        team = self._teams.get(row.get("team_id") or "")
        if team is None or team.project.name != DEFAULT_PROJECT:
            self._notes.left_out(where, "a project below a team of an organization: its keys too", "make it a team")
            return
        name = _unique(row.get("project_alias"), row["project_id"], "project", team.organization.projects)
        self._notes.unused(where, dict(row), UNUSED_OF_TENANT)
        project = team.organization.project(
            name,
            models=_narrower(team.organization.models, self._models_of(row.get("models"), where)),
            limits=self._limits_of(row, where),
            disabled=bool(row.get("blocked")),
            keys=[],
        )
        self._projects[row["project_id"]] = _Home(team.organization, project, divisible=not project.limits)

    def _home(self, row: Row) -> _Home | None:
        """The home of a key; None if its team or project is not imported."""
        if row.get("project_id"):
            return self._projects.get(row["project_id"])
        if row.get("team_id"):
            return self._teams.get(row["team_id"])
        owner = self._organizations.get(row.get("organization_id") or "")
        if owner is not None:
            return _Home(owner, owner.project(DEFAULT_PROJECT, models=owner.models, keys=[]), divisible=True)
        if self._personal is None:
            name = _unique(self._personal_name, "", "organization", self._taken)
            self._personal = PlannedOrganization(name=name, projects={})
            self._made.append(self._personal)
        user = self._users.get(row.get("user_id") or "")
        if user is None:
            return _Home(self._personal, self._personal.project(DEFAULT_PROJECT, keys=[]), divisible=True)
        project = self._project_of_user.get(user["user_id"])
        if project is None:
            label = user.get("user_email") or user.get("user_alias")  # which several users may share
            name = _unique(label, user["user_id"], "user", {*self._personal.projects, DEFAULT_PROJECT})
            where = f"user {name}"
            project = self._project_of_user[user["user_id"]] = self._personal.project(
                name,
                models=self._models_of(user.get("models"), where),
                limits=self._limits_of(user, where),
                keys=[],
            )
        return _Home(self._personal, project, divisible=not project.limits)

    def _add_key(self, row: Row) -> None:
        token = str(row["token"])
        name = _clean(row.get("key_alias") or row.get("key_name"), token[:12], "key")
        where, notes = f"key {name}", self._notes
        expires_at = _moment(row.get("expires"))
        if row.get("blocked"):
            return notes.left_out(where, "it is blocked", "a key that is left out is refused")
        if expires_at is not None and expires_at <= self._now:
            return notes.left_out(where, f"it expired at {expires_at:%Y-%m-%d %H:%M}")
        if not re.fullmatch(r"[0-9a-f]{64}", token):
            return notes.left_out(where, "its token is not a SHA-256", "make a key: `slipstream keys create`")
        home = self._home(row)
        if home is None:
            return notes.left_out(where, "its team or project is not imported", "make a key: `slipstream keys create`")
        scopes, closed = _scopes_of(row.get("allowed_routes") or [])
        if closed:
            notes.left_out(f"{where}: allowed_routes", f"no counterpart of {', '.join(closed)}")
        if scopes == []:
            return notes.left_out(where, "its routes are not served here")
        project = self._project_for(row, home, where)
        if project is None:
            return None
        notes.unused(where, dict(row), UNUSED_OF_KEY)
        project.keys.append(
            PlannedKey(
                name=name,
                display=_display(row.get("key_name"), token),
                sha256=bytes.fromhex(token),
                expires_at=expires_at,
                scopes=scopes,
                limits=self._limits_of(row, where),
            )
        )
        return None

    def _project_for(self, row: Row, home: _Home, where: str) -> PlannedProject | None:
        """The project with exactly the key's models, created if needed; None if that would change its limits."""
        models = _narrower(home.project.models, self._models_of(row.get("models"), where))
        if models == home.project.models:
            return home.project
        if not home.divisible:
            listed = ", ".join(models or ["none"])
            step = f"`slipstream customers projects create`, then `slipstream keys create`, for {listed}"
            self._notes.left_out(where, "it may use fewer models than its project, whose limits it shares", step)
            return None
        name = f"{home.project.name}: {', '.join(models or ['no model'])}"[:NAME_CHARACTERS]
        existing = home.organization.projects.get(name)
        if existing is not None and (existing.models != models or existing.limits):
            # another project's name, or the same start of a longer list: its keys may use other models
            digest = hashlib.sha256("\n".join(models or ()).encode()).hexdigest()[:16]
            name = f"{name[: NAME_CHARACTERS - 17]} {digest}"
        disabled = home.project.disabled
        if name not in home.organization.projects:
            self._notes.differs(where, f"it moves to a project of its own with these models, {name!r}")
        return home.organization.project(name, models=models, disabled=disabled, keys=[])

    def _models_of(self, values: Iterable[str] | None, where: str) -> list[str] | None:
        """The names of the models here; None for all, or for those of the level above."""
        names = list(values or ())
        if not names or ALL_MODELS & set(names) or TEAM_MODELS in names:
            return None
        unknown = [name for name in names if name not in self._models and name != NO_MODELS]
        if unknown:
            self._notes.left_out(f"{where}: models", f"not imported: {', '.join(unknown)}")
        return sorted({self._models[name] for name in names if name in self._models})

    def _limits_of(self, row: Row, where: str) -> Limits:
        """The row's own limits, or those of the budget that it names."""
        budget = self._budgets.get(row.get("budget_id") or "", {})
        values: dict[str, int] = {}
        for ours, theirs in RATES.items():
            limit: int | None = row.get(theirs) if row.get(theirs) is not None else budget.get(theirs)
            if limit is not None and limit < 1:
                self._notes.left_out(f"{where}: {theirs} {limit}", "a limit is at least 1", "revoke the key")
            elif limit is not None:
                values[ours] = limit
        source = row if row.get("max_budget") is not None else budget
        money, period = source.get("max_budget"), source.get("budget_duration")
        if money is not None and math.isfinite(money):
            if period is not None and MONTH.fullmatch(period):
                values["money_micro_per_month"] = round(money * 1e6)
                if period != "1mo":
                    self._notes.differs(f"{where}: max_budget", f"a calendar month in UTC instead of {period}")
            else:
                step = "`slipstream customers limits set --money-per-month`"
                self._notes.left_out(
                    f"{where}: max_budget {money:g}",
                    f"budgets are by the month, not {period or 'without a period'}",
                    step,
                )
        return msgspec.convert(values, Limits)

    def _note_the_rest(self, dashboard: int) -> None:
        notes, tables = self._notes, self._tables
        if dashboard:
            notes.left_out(f"{dashboard} keys of team {DASHBOARD}", "they are sessions of LiteLLM's pages")
        if tables.users:
            step = "`slipstream customers members add`, or sign-in by OpenID Connect: docs/guides/console.md"
            notes.left_out(f"{len(tables.users)} users", "the import moves keys, not people", step)
        if any(row.get("spend") for rows in (tables.organizations, tables.teams, tables.keys) for row in rows):
            notes.differs("spend", "earlier spending is not counted: budgets begin at 0")
        for table, count in tables.others.items():
            notes.left_out(f"{count} rows of {table}", "no counterpart", OTHERS.get(table, ""))


OTHERS = {
    "LiteLLM_ProxyModelTable": "models kept in the database are encrypted: write them to model_list first",
    "LiteLLM_Config": "settings kept in the database: write them to the file first",
    "LiteLLM_CredentialsTable": "name engines' keys by api_key_env or api_key_file of a pool",
    "LiteLLM_DeprecatedVerificationToken": "rotate these keys before you import, or give their owners the new ones",
    "LiteLLM_EndUserTable": "limits are of organizations, projects and keys",
    "LiteLLM_TagTable": "limits are of organizations, projects and keys",
    "LiteLLM_TeamMembership": "limits are of organizations, projects and keys",
}


def _narrower(above: list[str] | None, own: list[str] | None) -> list[str] | None:
    if above is None or own is None:
        return above if own is None else own
    return [name for name in own if name in above]


def _scopes_of(routes: Collection[str]) -> tuple[list[Scope] | None, list[str]]:
    """The scopes, None for all, and the routes without a scope."""
    if not routes:
        return None, []
    known = {route: SCOPES.get(route.removeprefix("/v1")) for route in routes}
    scopes = {scope for found in known.values() if found for scope in found}
    return sorted(scopes), [route for route, found in known.items() if found is None]


def _moment(value: Any) -> datetime | None:
    """LiteLLM's times have no zone and are in UTC."""
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _display(key_name: Any, token: str) -> str:
    return f"sk-…{str(key_name)[-4:]}" if key_name else f"sha256 {token[:8]}…"


def _unique(alias: Any, id_: str, kind: str, taken: Collection[str]) -> str:
    """An unused name: the alias, followed by the id if another has it. Adds it to `taken` if that is a set."""
    name = _clean(alias, id_, kind)
    if name in taken:
        name = f"{name[: NAME_CHARACTERS - 60]} ({id_ or kind})"
    if isinstance(taken, set):
        taken.add(name)
    return name


def _clean(alias: Any, id_: str, kind: str) -> str:
    """A printable name that does not look like an id: commands would take it for one."""
    name = printable(str(alias or "")).strip()[:NAME_CHARACTERS] or f"{kind} {printable(id_)[:100]}"
    try:
        UUID(name)
    except ValueError:
        return name
    return f"{kind} {name}"
